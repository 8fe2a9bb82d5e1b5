"""relight as its users run it: embedded servers, and the project's programs as processes of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from benchmarks.polling import until
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.temporal import EmbeddedTemporal
from workers.worker import search_attributes

CLUSTER = "benchmark"
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Servers:
    """Temporal and PostgreSQL, running."""

    temporal: EmbeddedTemporal
    postgres: EmbeddedPostgres
    client: Client

    def write_settings(self, file: Path, scheduler: Mapping[str, object], *, webhook_url: str = "") -> Path:
        """Write relight.yaml for one cluster in act mode, with every other setting as it is by default."""
        file.touch(mode=0o600)
        cluster = {"name": CLUSTER, "scheduler": scheduler, "mode": "act", "acknowledge_scheduler_actions": True}
        content = {
            "temporal": {"address": self.temporal.address},
            "audit": {"dsn": self.postgres.dsn},
            "notify": {"webhook_url": webhook_url},
            "clusters": [cluster],
        }
        file.write_text(yaml.safe_dump(content))
        return file


@asynccontextmanager
async def running_servers(directory: Path) -> AsyncIterator[Servers]:
    """Run the embedded servers in `directory`."""
    temporal = EmbeddedTemporal(directory / "temporal", search_attributes=search_attributes())
    postgres = EmbeddedPostgres(directory / "postgres")
    async with temporal, postgres:
        client = await Client.connect(temporal.address, data_converter=pydantic_data_converter)
        yield Servers(temporal, postgres, client)


@asynccontextmanager
async def running_program(log: Path, module: str, *arguments: str) -> AsyncIterator[int]:
    """Run ``python -m module`` with its output in `log` and yield its process id."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, stdout=output, stderr=output, stdin=asyncio.subprocess.DEVNULL
        )
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()


@asynccontextmanager
async def running_worker(directory: Path, settings: Path, client: Client) -> AsyncIterator[int]:
    """Run ``relight worker`` and yield its process id once it looks for jobs."""
    log = directory / "worker.log"
    async with running_program(log, "workers.cli", "--config", str(settings), "worker") as pid:
        try:
            await until(lambda: _looks_for_jobs(client), timeout_s=START_TIMEOUT_S)
        except TimeoutError:
            raise RuntimeError(f"the worker did not start: {log.read_text()[-1_000:]}") from None
        yield pid


async def _looks_for_jobs(client: Client) -> bool:
    try:
        description = await client.get_workflow_handle(f"cluster/{CLUSTER}").describe()
    except RPCError:
        return False
    activities = description.raw_description.pending_activities
    return any(activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED for activity in activities)
