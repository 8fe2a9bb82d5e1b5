"""Temporal and PostgreSQL, the same ones for all runs of a session, each on a disk of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.disk import Disk, disk
from tests.chaos.records import Outage, Party
from tests.embedded.places import open_directory
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.server import EmbeddedServer
from workers.embedded.temporal import EmbeddedTemporal
from workers.worker import search_attributes

RECOVERS_WITHIN_S = 10.0
"""A server whose disk was full, and that does not answer so long after it is free, is started again."""


@dataclass
class House:
    """One server and its disk."""

    party: Party
    server: EmbeddedServer
    disk: Disk
    outages: list[Outage]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    restarts_after_full_disk: int = 0

    async def kill(self, away_s: float) -> None:
        """SIGKILL the server and start it again on its files after `away_s`."""
        async with self.lock:
            since = datetime.now(UTC)
            with suppress(ProcessLookupError):
                os.kill(self.server.record.pid, signal.SIGKILL)
            await self.server.stop()
            await asyncio.sleep(away_s)
            await self.server.start()
            self._note(since)

    async def stop_clock(self, for_s: float) -> None:
        """Let all of its processes stand still."""
        async with self.lock:
            since = datetime.now(UTC)
            family = _family(self.server.record.pid)
            _send(family, signal.SIGSTOP)
            try:
                await asyncio.sleep(for_s)
            finally:
                _send(family, signal.SIGCONT)
            self._note(since, fatal=False)

    async def fill_disk(self, for_s: float) -> bool:
        """Let its disk be full; False where that can't be done. A server that ended of it is started again."""
        if not self.disk.can_be_full:
            return False
        async with self.lock:
            since = datetime.now(UTC)
            self.disk.fill()
            try:
                await asyncio.sleep(for_s)
            finally:
                self.disk.free()
            if not await self._answers_again():
                self.restarts_after_full_disk += 1
                with suppress(ProcessLookupError):
                    os.kill(self.server.record.pid, signal.SIGKILL)
                await self.server.stop()
                await self.server.start()
            self._note(since, fatal=False)
        return True

    async def _answers_again(self) -> bool:
        """Whether it takes a change: one that is up and only reads is of no use."""
        deadline = asyncio.get_running_loop().time() + RECOVERS_WITHIN_S
        while asyncio.get_running_loop().time() < deadline and self.server.is_running():
            with suppress(Exception):
                async with asyncio.timeout(5):
                    await self.server._settle()
                    return True
            await asyncio.sleep(0.2)
        return False

    def _note(self, since: datetime, *, fatal: bool = True) -> None:
        self.outages.append(Outage(party=self.party, since=since, until=datetime.now(UTC), fatal=fatal))


@dataclass(frozen=True)
class Servers:
    """Both servers, and when each was out of order."""

    temporal: House
    postgres: House
    address: str
    dsn: str
    outages: list[Outage]


@asynccontextmanager
async def servers_up() -> AsyncIterator[Servers]:
    """Both servers, in directories of their own."""
    outages: list[Outage] = []
    with (
        open_directory() as directory,
        disk(directory / "temporal") as of_temporal,
        disk(directory / "postgres") as of_postgres,
    ):
        temporal = EmbeddedTemporal(directory / "temporal", search_attributes=search_attributes())
        postgres = EmbeddedPostgres(directory / "postgres")
        async with temporal, postgres:
            yield Servers(
                House(Party.TEMPORAL, temporal, of_temporal, outages),
                House(Party.POSTGRES, postgres, of_postgres, outages),
                temporal.address,
                postgres.dsn,
                outages,
            )


def _family(pid: int) -> list[int]:
    """The process and its children, parents first. PostgreSQL's children are in sessions of their own."""
    family = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                family.append(int(stat.parent.name))
    return family


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
