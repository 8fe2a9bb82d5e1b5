"""Log stores on this host, each with a data directory of its own, and what ships lines to them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from activities.logs.loki import Loki
from activities.logs.stores.protocol import SurveyedStore
from activities.logs.stores.settings import LabelNames, LokiSettings, StoreSettings, VictoriaLogsSettings
from activities.logs.victorialogs import VictoriaLogs

START_TIMEOUT_S = 60.0
CLUSTER = "alpha"
LABELS = LabelNames(cluster="cluster")
OWN_LOKI = "TESTS_LOKI_URL"
KINDS = ("loki", "victorialogs")


class NoStore(Exception):
    """The store is not on this machine; the message says why in one line."""


@dataclass
class RunningStore:
    """A store that answers."""

    kind: str
    url: str
    command: tuple[str, ...] = ()
    """Empty: it runs elsewhere, and is not ours to break."""
    log: Path = Path()
    process: subprocess.Popen[bytes] | None = None

    @property
    def push_url(self) -> str:
        """Both take what Loki's collectors send."""
        return f"{self.url}{'' if self.kind == 'loki' else '/insert'}/loki/api/v1/push"

    def settings(self, **changes: object) -> LokiSettings | VictoriaLogsSettings:
        """Return settings for the store with the labels that `Shipper` sets."""
        kept = {"kind": self.kind, "url": self.url, "labels": LABELS, "poll_interval_s": 0.5, **changes}
        return LokiSettings.model_validate(kept) if self.kind == "loki" else VictoriaLogsSettings.model_validate(kept)

    def client(self, **changes: object) -> tuple[SurveyedStore, StoreSettings]:
        """Return a client of the store, and the settings that it goes by."""
        settings = self.settings(**changes)
        if isinstance(settings, LokiSettings):
            return Loki(settings, CLUSTER), settings
        return VictoriaLogs(settings, CLUSTER), settings

    def start(self) -> None:
        """Start it, again with the lines that it keeps on disk, and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until_it_answers(f"{self.url}/{'ready' if self.kind == 'loki' else 'health'}", self.process, self.log)

    def stop(self) -> None:
        """End it in good order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)


class Shipper:
    """Ships lines as a collector does: in batches, with labels that say where they come from."""

    def __init__(self, store: RunningStore, *, tenant: str = "", cluster: str = CLUSTER) -> None:
        headers = {"X-Scope-OrgID": tenant} if tenant and store.kind == "loki" else {}
        if tenant and store.kind == "victorialogs":
            headers["AccountID"], _, headers["ProjectID"] = tenant.partition(":")
        self._http = httpx.AsyncClient(headers=headers, timeout=30)
        self._url = store.push_url
        self._cluster = cluster

    async def ship(
        self, job_id: str, lines: Sequence[str], *, at_ns: int | None = None, apart_ns: int = 1, **labels: str
    ) -> None:
        """Push `lines` of a job, printed at `at_ns` and `apart_ns` after each other."""
        first_ns = time.time_ns() if at_ns is None else at_ns
        values = [[str(first_ns + n * apart_ns), line] for n, line in enumerate(lines)]
        stream = {"app": "slurm", "cluster": self._cluster, "slurm_job_id": job_id, **labels}
        await self.push([{"stream": stream, "values": values}])

    async def push(self, streams: Sequence[object]) -> None:
        """Push streams as they are."""
        (await self._http.post(self._url, json={"streams": streams})).raise_for_status()

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def shipping(store: RunningStore, *, tenant: str = "", cluster: str = CLUSTER) -> AsyncIterator[Shipper]:
    """A shipper while the context is open."""
    shipper = Shipper(store, tenant=tenant, cluster=cluster)
    try:
        yield shipper
    finally:
        await shipper.close()


@contextmanager
def running_store(kind: str, *options: str) -> Iterator[RunningStore]:
    """Run a store of `kind` while the context is open. Raises `NoStore`."""
    if kind == "loki" and not options and (url := os.environ.get(OWN_LOKI)):
        yield RunningStore(kind, url)
        return
    directory = Path(tempfile.mkdtemp(prefix=f"relight-{kind}-"))
    try:
        yield from _run(kind, directory, *options)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(kind: str, directory: Path, *options: str) -> Iterator[RunningStore]:
    port = free_port()
    command = loki_command(port) if kind == "loki" else victorialogs_command(port, directory)
    store = RunningStore(kind, f"http://127.0.0.1:{port}", (*command, *options), directory / "log")
    try:
        store.start()
        yield store
    finally:
        store.stop()


def loki_command(port: int) -> list[str]:
    return [sys.executable, "-m", "tests.stores.loki_api", "--port", str(port)]


def victorialogs_command(port: int, directory: Path) -> list[str]:
    """Return the command that runs VictoriaLogs. Raises `NoStore`."""
    binary = cached("stores", Path(__file__).with_name("go.mod")) / "victoria-logs"
    if not binary.is_file():
        raise NoStore("VictoriaLogs is not built on this machine (tests/install_stores.sh)")
    return [
        *(str(binary), f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={directory / 'data'}"),
        *("-loggerLevel=ERROR", "-retentionPeriod=10y", "-loki.disableMessageParsing"),
    ]


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cached(what: str, pins: Path) -> Path:
    """Return where a script puts what it installs for tests: by the checksum of the file that pins it."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    done = subprocess.run(["cksum"], input=pins.read_bytes(), capture_output=True, check=True)
    kind, _, release = what.partition("/")
    name = done.stdout.decode().split()[0]
    return Path(home) / "relight" / kind / (f"{release}-{name}" if release else name)


def wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"{process.args!r} does not answer: {log.read_text(errors='replace')[-2_000:]}")
