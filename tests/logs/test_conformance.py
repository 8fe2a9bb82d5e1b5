"""Files, Loki and VictoriaLogs pass the same tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from activities.logs.files import FileTail
from activities.logs.stores.source import StoreLogs
from activities.scheduler.protocol import JobRecord
from tests.logs.conformance import JOB_IDS, LogSourceConformance, running
from tests.stores.servers import KINDS, RunningStore, Shipper, shipping
from tests.stores.skipping import store_or_skip

NODES = ("node01", "node02")


class InFiles:
    def __init__(self, directory: Path) -> None:
        self.job_id = next(JOB_IDS)
        self.source = FileTail()
        self.opened = [self.source]
        self._log = directory / f"slurm-{self.job_id}.out"
        self._log.write_text("")

    def another_source(self) -> FileTail:
        self.opened.append(FileTail())
        return self.opened[-1]

    async def write(self, *lines: str) -> None:
        with self._log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def record(self, attempt: int, started_at: datetime) -> JobRecord:
        return running(self.job_id, attempt, started_at, str(self._log))


class InAStore:
    def __init__(self, store: RunningStore, shipper: Shipper) -> None:
        self.job_id = next(JOB_IDS)
        self._store = store
        self._shipper = shipper
        self.opened: list[StoreLogs] = []
        self.source = self.another_source()

    def another_source(self) -> StoreLogs:
        self.opened.append(StoreLogs(*self._store.client()))
        return self.opened[-1]

    async def write(self, *lines: str) -> None:
        await self._shipper.ship(self.job_id, lines, host=NODES[0])

    def record(self, attempt: int, started_at: datetime) -> JobRecord:
        return running(self.job_id, attempt, started_at)


class TestFiles(LogSourceConformance):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> AsyncIterator[InFiles]:
        place = InFiles(tmp_path)
        yield place
        for source in place.opened:
            await source.close()


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[RunningStore]:
    with store_or_skip(request.param) as store:
        yield store


class TestStores(LogSourceConformance):
    @pytest.fixture
    async def place(self, store: RunningStore) -> AsyncIterator[InAStore]:
        async with shipping(store) as shipper:
            place = InAStore(store, shipper)
            yield place
            await asyncio.gather(*(source.close() for source in place.opened))
