"""An attempt's output in several places at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.logs import belief
from activities.logs.attempt import AttemptLog
from activities.logs.files import FileTail
from activities.logs.merged import MergedLogs
from activities.logs.protocol import LogCursor, SourceState
from activities.logs.stores.source import StoreLogs
from activities.scheduler.protocol import JobRecord
from tests.logs.conformance import JOB_IDS, running
from tests.stores.servers import RunningStore, Shipper, running_store, shipping


@pytest.fixture(scope="module")
def store() -> Iterator[RunningStore]:
    with running_store("loki") as store:
        yield store


@pytest.fixture
async def shipper(store: RunningStore) -> AsyncIterator[Shipper]:
    async with shipping(store) as shipper:
        yield shipper


@pytest.fixture
async def logs(store: RunningStore) -> AsyncIterator[MergedLogs]:
    files, in_store = FileTail(), StoreLogs(*store.client())
    yield MergedLogs([files, in_store])
    await files.close()
    await in_store.close()


@pytest.fixture
def record(tmp_path: Path) -> JobRecord:
    return running(next(JOB_IDS), 0, datetime.now(UTC), str(tmp_path / "job.log"))


async def hears(log: AttemptLog, count: int, seconds: float = 20.0) -> list[str]:
    """Read until `count` lines were heard, and once more."""
    heard: list[str] = []
    async with asyncio.timeout(seconds):
        while len(heard) < count:
            heard += [line.line.text for line in await log.read()]
            await asyncio.sleep(0.1)
    return heard + [line.line.text for line in await log.read()]


async def test_the_same_lines_in_a_file_and_in_a_store_count_once(
    logs: MergedLogs, shipper: Shipper, record: JobRecord
) -> None:
    log = AttemptLog(logs)
    log.belongs_to(record, datetime.now(UTC))
    Path(record.stdout).write_text("one\ntwo\n")
    await shipper.ship(record.job_id, ["2026-01-01 collector: one", "2026-01-01 collector: two"])
    assert await hears(log, 2) == ["one", "two"]
    assert [line.line.text for line in [*await log.read(), *await log.read()]] == []
    assert log.sight is SourceState.FRESH


async def test_the_store_stands_in_for_a_file_that_is_lost(
    logs: MergedLogs, shipper: Shipper, record: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(belief, "GIVE_UP_S", 2.0)
    log = AttemptLog(logs)
    log.belongs_to(record, datetime.now(UTC))
    output = Path(record.stdout)
    output.write_text("one\n")
    await shipper.ship(record.job_id, ["one"])
    assert await hears(log, 1) == ["one"]
    await asyncio.sleep(1)
    await log.read()
    output.unlink()
    await log.read()
    assert log.sight is SourceState.MISSING
    await shipper.ship(record.job_id, ["two"])
    assert await hears(log, 1) == ["two"]
    assert log.sight is SourceState.FRESH


async def test_a_cursor_of_a_store_that_is_configured_no_more_is_left_out(record: JobRecord) -> None:
    files = FileTail()
    Path(record.stdout).write_text("one\n")
    log = AttemptLog(files, began=(LogCursor(source="loki:1"), LogCursor(source=record.stdout)))
    log.belongs_to(record, datetime.now(UTC))
    assert await hears(log, 1) == ["one"]
    assert [cursor.source for cursor in log.cursors] == [record.stdout]
    await files.close()


async def test_a_store_that_is_configured_later_is_read_from_then_on(
    logs: MergedLogs, shipper: Shipper, record: JobRecord
) -> None:
    Path(record.stdout).write_text("one\n")
    log = AttemptLog(logs, began=(LogCursor(source=record.stdout),))
    log.belongs_to(record, datetime.now(UTC))
    assert await hears(log, 1) == ["one"]
    assert {logs.family(cursor.source) for cursor in log.cursors} == {"files", "loki"}


async def test_after_an_attempts_end_lines_on_their_way_are_waited_for(
    store: RunningStore, shipper: Shipper, record: JobRecord
) -> None:
    source = StoreLogs(*store.client())
    log = AttemptLog(source)
    log.belongs_to(record, datetime.now(UTC))
    await shipper.ship(record.job_id, ["one"])
    assert await hears(log, 1) == ["one"]
    printed_ns = time.time_ns()

    async def ship_late() -> None:
        await asyncio.sleep(1.5)
        await shipper.ship(record.job_id, ["last words"], at_ns=printed_ns)

    shipping_late = asyncio.create_task(ship_late())
    assert [heard.line.text async for heard in log.drain()] == ["last words"]
    await shipping_late
    await source.close()
