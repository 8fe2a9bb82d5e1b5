"""All parts of one run: the servers, a cluster, the workers that serve it in act mode, and a watchdog beside them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.chaos.arena import Arena
from tests.chaos.crew import Kept, nursery
from tests.chaos.disk import Disk, disk
from tests.chaos.holds import HoldWatch
from tests.chaos.records import Outage, Party
from tests.chaos.servers import Servers
from tests.endtoend.service import Service

WATCHDOG = {"mode": "act", "acknowledge_scheduler_actions": True, "deadline_s": 30, "interval_s": 2}
GOVERNOR = {"restarts": 5000, "restarted_nodes_fraction": 1e6, "exclusions": 1000, "excluded_nodes_fraction": 1.0}
"""Here it is normal that everything fails."""
MAY_BE_HELD_FOR = timedelta(seconds=32)
"""The watchdog's deadline and one interval."""
LOG_LINES = 40

OpenArena = Callable[[Path, list[Outage]], AbstractAsyncContextManager[Arena]]
"""Opens a cluster for one run in a directory; its outages go to the list."""


@dataclass
class Stage:
    """One run's."""

    name: str
    directory: Path
    servers: Servers
    arena: Arena
    workers: tuple[Kept, ...]
    watchdog: Kept
    holds: HoldWatch
    spool_disk: Disk

    async def fill_spool(self, for_s: float) -> bool:
        """Let the disk be full that the watchdog writes its events to."""
        if not self.spool_disk.can_be_full:
            return False
        self.spool_disk.fill()
        try:
            await asyncio.sleep(for_s)
        finally:
            self.spool_disk.free()
        return True

    @property
    def spool_is_empty(self) -> bool:
        """Whether all that the watchdog told is delivered."""
        return not any((self.directory / ".relight").rglob("*.jsonl"))

    def keep(self, where: Path) -> None:
        """Copy what the run has left on disk, the scheduler's own records among it."""
        ignored = shutil.ignore_patterns("ckpt-*", "*.sock", ".relight")
        shutil.copytree(self.directory, where / self.name, ignore=ignored, dirs_exist_ok=True)
        for log in self.arena.logs:
            shutil.copy(log, where / self.name)

    def story(self) -> str:
        """Return the ends of all logs."""
        logs = [*self.workers, self.watchdog]
        ends = [(kept.log.name, kept.log.read_text(errors="replace").splitlines()[-LOG_LINES:]) for kept in logs]
        return "\n".join(line for name, lines in ends for line in (f"--- {name}", *lines))


@asynccontextmanager
async def stage(
    servers: Servers, name: str, open_arena: OpenArena, *, workers: int = 1, mutant: str = ""
) -> AsyncIterator[Stage]:
    """One cluster called `name` with all that belongs to it; everything serves."""
    directory = Path(tempfile.mkdtemp(prefix="relight-chaos-"))
    outages = servers.outages
    try:
        with disk(directory / ".relight") as spool_disk:
            async with open_arena(directory, outages) as arena:
                service = Service(directory, servers.address, servers.dsn, name)
                poll_interval_s = 0.5 * max(1, workers // 2)  # together they ask the scheduler as often
                service.configure(arena.settings, poll_interval_s=poll_interval_s, watchdog=WATCHDOG, governor=GOVERNOR)
                crew = tuple(
                    Kept(
                        Party.WORKER,
                        ("worker",),
                        directory / f"worker-{number}.log",
                        serves=" serving ",
                        outages=outages,
                    )
                    for number in range(workers)
                )
                watchdog = Kept(
                    Party.WATCHDOG,
                    ("watchdog",),
                    directory / "watchdog.log",
                    serves="watching for holds",
                    outages=outages,
                )
                holds = HoldWatch(arena.jobs)
                async with nursery(service.config, mutant) as births:
                    tasks = [asyncio.create_task(kept.keep(births)) for kept in (*crew, watchdog)]
                    tasks.append(asyncio.create_task(holds.watch()))
                    try:
                        await asyncio.gather(*(kept.serving() for kept in (*crew, watchdog)))
                        yield Stage(name, directory, servers, arena, crew, watchdog, holds, spool_disk)
                    finally:
                        for task in tasks:
                            task.cancel()
                        for task in tasks:
                            with suppress(asyncio.CancelledError):
                                await task
    finally:
        shutil.rmtree(directory, ignore_errors=True)
