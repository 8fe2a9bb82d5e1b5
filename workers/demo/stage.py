"""Everything that the demonstration runs on: servers, simulated cluster, worker; started in order, ended in reverse."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from temporalio.client import Client

from activities.logs.files import FileTail
from activities.scheduler.simulated import SimulatedCluster, SimulatedScheduler
from workers.connection import connect
from workers.embedded.ownership import owned
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.temporal import EmbeddedTemporal
from workers.errors import OperatorError
from workers.settings import Settings, load_settings
from workers.worker import search_attributes

CLUSTER = "simulated"
MARK = "relight-demo"
PROCESS_GRACE_S = 10.0


@dataclass(frozen=True)
class Stage:
    """What runs, and how to reach it."""

    directory: Path
    settings: Settings
    client: Client
    cluster: SimulatedCluster
    scheduler: SimulatedScheduler
    logs: FileTail
    ui_url: str


@asynccontextmanager
async def running_stage(directory: Path) -> AsyncIterator[Stage]:
    """Run everything in `directory`, which is emptied first. Raises `OperatorError` when a part does not start."""
    directory = _checked(directory)
    with owned(directory):
        _empty(directory)
        async with _everything(directory) as stage:
            yield stage


@asynccontextmanager
async def _everything(directory: Path) -> AsyncIterator[Stage]:
    temporal = EmbeddedTemporal(directory / "temporal", search_attributes=search_attributes())
    postgres = EmbeddedPostgres(directory / "postgres")
    async with AsyncExitStack() as stack:
        # A socket's path may have about 100 characters, wherever the demonstration's own directory lies.
        socket = Path(stack.enter_context(TemporaryDirectory(prefix="relight-"))) / "cluster.sock"
        for server in (temporal, postgres):
            await stack.enter_async_context(server)
        simulator = ("workers.simulator", "--state-dir", str(directory / "cluster"), "--socket", str(socket))
        await stack.enter_async_context(_process(directory, "simulator", simulator))
        cluster = SimulatedCluster(socket)
        await cluster.ready()
        config = _write_config(directory, socket, temporal, postgres)
        settings = load_settings(config)
        worker = ("workers.cli", "--config", str(config), "worker")
        await stack.enter_async_context(_process(directory, "worker", worker))
        client = await connect(settings, address=temporal.address)
        logs = FileTail()
        stack.push_async_callback(logs.close)
        yield Stage(directory, settings, client, cluster, SimulatedScheduler(socket), logs, temporal.ui_url)


def _checked(directory: Path) -> Path:
    """Only a directory that an earlier demonstration made is emptied: anything else would be somebody's files."""
    directory = directory.absolute()
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).exists():
        raise OperatorError(f"{directory} is not empty and was not made by a demonstration", "give another --dir")
    return directory


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "owner.lock":
            entry.unlink()
    (directory / MARK).touch()


def _write_config(directory: Path, socket: Path, temporal: EmbeddedTemporal, postgres: EmbeddedPostgres) -> Path:
    config = directory / "relight.yaml"
    config.touch(mode=0o600)
    content = {
        "temporal": {"address": temporal.address, "ui_url": temporal.ui_url},
        "audit": {"dsn": postgres.dsn},
        "clusters": [
            {
                "name": CLUSTER,
                "scheduler": {"kind": "simulated", "socket": str(socket)},
                "mode": "act",
                "acknowledge_scheduler_actions": True,
                "poll_interval_s": 0.5,
            }
        ],
    }
    config.write_text(yaml.safe_dump(content))
    return config


@asynccontextmanager
async def _process(directory: Path, name: str, module: tuple[str, ...]) -> AsyncIterator[None]:
    """Run ``python -m module`` with its output in ``<name>.log``, in a session of its own: Ctrl-C is ours to handle."""
    with (directory / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *module,
            stdout=log,
            stderr=log,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(PROCESS_GRACE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
