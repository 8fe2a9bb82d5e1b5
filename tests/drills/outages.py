"""The table of outages: what goes away, how, and what people must be shown meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from unittest.mock import patch

from activities.logs import files
from activities.logs.protocol import Chunk, LogCursor
from activities.logs.reading import read_after
from activities.logs.stores.reader import LEAST_FRESH_S
from activities.snapshot import LONGEST_PAUSE_IN_SILENCE_S
from tests.drills.clusters import Real, Simulated
from tests.drills.crowd import IntoStore
from tests.drills.house import METRICS_STALE_AFTER_S, House, Scene
from workers.embedded.server import EmbeddedServer

Process = asyncio.subprocess.Process | subprocess.Popen[bytes]
Away = Callable[[House], AbstractAsyncContextManager[None]]

STALE_AFTER_S = 60.0
"""The default of a store's ``stale_after_s``."""


@dataclass(frozen=True)
class Outage:
    """One source that is lost, and comes back when the context ends."""

    name: str
    scene: Scene
    away: Away
    blinds: bool = True
    """Whether every job has to be shown as blind."""
    source: str = ""
    """What `relight status` has to name as blind; empty: nothing."""
    sees_crashes: bool = True
    """Whether a crash that Slurm sees is answered while the outage lasts."""
    dark_s: float = 0.0
    """How long the source may be away before that counts."""
    returns_s: float = 0.0
    """How long after its return a question may be under way that was asked before, and the pause after that one."""


@asynccontextmanager
async def _files_vanish(house: House) -> AsyncIterator[None]:
    away = [(voice.output, voice.output.with_suffix(".away")) for voice in house.crowd.voices]
    for log, elsewhere in away:
        log.rename(elsewhere)
    yield
    for log, elsewhere in away:
        elsewhere.rename(log)


@asynccontextmanager
async def _files_unreadable(house: House) -> AsyncIterator[None]:
    """Root may read everything, so that a directory stands where each file was."""
    async with _files_vanish(house):
        logs = [voice.output for voice in house.crowd.voices]
        for log in logs:
            log.mkdir()
        yield
        for log in logs:
            log.rmdir()


@asynccontextmanager
async def _file_system_hangs(house: House) -> AsyncIterator[None]:
    """Reads do not return, as on NFS without its server: nothing of this host can be made to hang like that."""
    back = threading.Event()

    def hangs(cursor: LogCursor, limit_bytes: int, now: float) -> Chunk:
        back.wait()
        return read_after(cursor, limit_bytes, now)

    with patch.object(files, "read_after", hangs):
        try:
            yield
        finally:
            back.set()


def _scheduler_says(answer: bytes) -> Away:
    @asynccontextmanager
    async def away(house: House) -> AsyncIterator[None]:
        cluster = house.cluster
        assert isinstance(cluster, Simulated)
        cluster.line.says = answer
        yield
        cluster.line.says = None

    return away


def _killed(server: Callable[[House], EmbeddedServer]) -> Away:
    @asynccontextmanager
    async def away(house: House) -> AsyncIterator[None]:
        with suppress(ProcessLookupError):
            os.kill(server(house).record.pid, signal.SIGKILL)
        await server(house).stop()
        yield
        await server(house).start()

    return away


def _stands_still(process: Callable[[House], Process]) -> Away:
    """Connections are taken, and nothing is answered."""

    @asynccontextmanager
    async def away(house: House) -> AsyncIterator[None]:
        stopped = process(house)
        stopped.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            stopped.send_signal(signal.SIGCONT)

    return away


def _of_scheduler(house: House) -> Process:
    assert isinstance(house.cluster, Simulated)
    return house.cluster.process


def _of_log_store(house: House) -> Process:
    assert house.store is not None
    assert house.store.process is not None
    return house.store.process


def _of_metrics(house: House) -> Process:
    store, _ = house.metrics_there
    assert store.process is not None
    return store.process


@asynccontextmanager
async def _store_ends(house: House) -> AsyncIterator[None]:
    assert house.store is not None
    await asyncio.to_thread(house.store.stop)
    yield
    await asyncio.to_thread(house.store.start)


@asynccontextmanager
async def _collectors_rest(house: House) -> AsyncIterator[None]:
    outlet = house.crowd.outlet
    assert isinstance(outlet, IntoStore)
    outlet.stopped = True
    yield
    outlet.stopped = False


@asynccontextmanager
async def _metrics_end(house: House) -> AsyncIterator[None]:
    store, _ = house.metrics_there
    await asyncio.to_thread(store.kill)
    yield
    await asyncio.to_thread(store.start)


@asynccontextmanager
async def _exporters_rest(house: House) -> AsyncIterator[None]:
    _, exporter = house.metrics_there
    shown = exporter.lines
    exporter.show()
    yield
    exporter.show(*shown)


def _slurm(begin: str, end: str) -> Away:
    @asynccontextmanager
    async def away(house: House) -> AsyncIterator[None]:
        assert isinstance(house.cluster, Real)
        slurm = house.cluster.slurm
        await asyncio.sleep(STATE_SAVED_S)
        getattr(slurm, begin)()
        # The daemons die with the thread that starts them: this has to be the main one.
        yield
        getattr(slurm, end)()

    return away


_GARBAGE = json.dumps({"jobs": [{"job_id": "1"}]}).encode() + b"\n"
_NO_JOBS = json.dumps({"jobs": []}).encode() + b"\n"
_SIMULATED_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 20.0
STATE_SAVED_S = 7.0
"""A killed controller loses what changed in its last five seconds: a job that had just come would be no more."""

OUTAGES = (
    Outage("log files vanish", Scene.FILES, _files_vanish),
    Outage("log files can't be read", Scene.FILES, _files_unreadable),
    Outage("the logs' file system hangs", Scene.FILES, _file_system_hangs, dark_s=files.READ_TIMEOUT_S),
    Outage("slurmctld is gone", Scene.FILES, _scheduler_says(b""), source="scheduler", sees_crashes=False),
    Outage("slurmctld answers garbage", Scene.FILES, _scheduler_says(_GARBAGE), source="scheduler", sees_crashes=False),
    Outage(
        "slurmctld never answers",
        Scene.FILES,
        _stands_still(_of_scheduler),
        source="scheduler",
        sees_crashes=False,
        dark_s=_SIMULATED_TIMEOUT_S,
        returns_s=_SIMULATED_TIMEOUT_S + LONGEST_PAUSE_IN_SILENCE_S,
    ),
    Outage("Prometheus is gone", Scene.FILES, _metrics_end, blinds=False, source="prometheus"),
    Outage(
        "Prometheus scrapes nothing",
        Scene.FILES,
        _exporters_rest,
        blinds=False,
        source="prometheus",
        dark_s=METRICS_STALE_AFTER_S,
    ),
    Outage("PostgreSQL is gone", Scene.FILES, _killed(lambda house: house.postgres), blinds=False),
    Outage("Temporal is gone", Scene.FILES, _killed(lambda house: house.temporal), blinds=False, sees_crashes=False),
    Outage("VictoriaLogs is gone", Scene.VICTORIALOGS, _store_ends, source="victorialogs", dark_s=LEAST_FRESH_S),
    Outage(
        "VictoriaLogs never answers",
        Scene.VICTORIALOGS,
        _stands_still(_of_log_store),
        source="victorialogs",
        dark_s=LEAST_FRESH_S,
    ),
    Outage(
        "VictoriaLogs gets nothing new",
        Scene.VICTORIALOGS,
        _collectors_rest,
        source="victorialogs",
        dark_s=STALE_AFTER_S,
    ),
    Outage(
        "VictoriaMetrics never answers",
        Scene.VICTORIALOGS,
        _stands_still(_of_metrics),
        blinds=False,
        source="victoria-metrics",
    ),
    Outage("Loki never answers", Scene.LOKI, _stands_still(_of_log_store), source="loki", dark_s=LEAST_FRESH_S),
    Outage("Loki gets nothing new", Scene.LOKI, _collectors_rest, source="loki", dark_s=STALE_AFTER_S),
    Outage(
        "slurmctld is killed",
        Scene.SLURM,
        _slurm("kill_slurmctld", "restart_slurmctld"),
        source="scheduler",
        sees_crashes=False,
    ),
    Outage(
        "slurmctld stands still",
        Scene.SLURM,
        _slurm("stall_slurmctld", "continue_slurmctld"),
        source="scheduler",
        sees_crashes=False,
        dark_s=_COMMAND_TIMEOUT_S,
        returns_s=_COMMAND_TIMEOUT_S + LONGEST_PAUSE_IN_SILENCE_S,
    ),
    Outage("slurmdbd is killed", Scene.SLURM, _slurm("kill_slurmdbd", "restart_slurmdbd"), blinds=False),
)
"""In the order in which they are drilled; those of one scene on the same jobs."""
