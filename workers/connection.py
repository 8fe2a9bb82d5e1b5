"""How every process of ours reaches Temporal: settings, else Temporal's own configuration, else the embedded server."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from workers.embedded.temporal import running_temporal
from workers.errors import OperatorError

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.runtime import Runtime

    from workers.settings import Settings


async def connect(settings: Settings, *, address: str = "") -> Client:
    """Return a client. `address` is the embedded server's where the caller runs it: then no other is meant.

    Raises `OperatorError` when nothing answers.
    """
    from temporalio.client import Client
    from temporalio.contrib.pydantic import pydantic_data_converter
    from temporalio.envconfig import ClientConnectConfig

    config = settings.temporal.connect_config(_embedded_address(settings))
    if address:
        config = ClientConnectConfig(target_host=address, namespace=config["namespace"])
    try:
        return await Client.connect(**config, data_converter=pydantic_data_converter, runtime=_runtime())
    except RuntimeError as error:
        raise OperatorError(
            f"Temporal does not answer at {config['target_host']}{_why(str(error))}",
            "start everything here with `relight up`, or set temporal.address in relight.yaml",
        ) from error


def _why(said: str) -> str:
    """The one readable part of what the client's core says, where it has one."""
    found = re.search(r'message: "([^"]{1,100})"', said)
    return f" ({found[1].lower()})" if found else ""


def _embedded_address(settings: Settings) -> str:
    record = running_temporal(settings.state_dir / "temporal")
    return f"127.0.0.1:{record.port}" if record is not None else ""


def _runtime() -> Runtime:
    """Temporal's core writes its log to stdout by itself, where it would spoil what commands print, and freeze a worker
    whose stdout nobody reads: it belongs into our log."""
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    core_filter = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=core_filter, forwarding=forwarding)))
