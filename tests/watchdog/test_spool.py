"""Audit events on disk until PostgreSQL takes them: crashes, full disks, and the real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from activities import audit_spool
from activities.audit import AuditTrail, AuditUnavailable
from activities.audit_spool import AuditSpool
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Mode
from tests.embedded.places import open_directory
from tests.protocol.parts import JOB, START
from workers.embedded.postgres import EmbeddedPostgres
from workers.settings import Settings
from workers.watchdog import SPOOL, AuditDelivery


def an_event(number: int = 1, **changes: Any) -> AuditEvent:
    standard: dict[str, Any] = {
        "key": f"watchdog/{number}",
        "at": START,
        "job": JOB,
        "attempt": 0,
        "kind": AuditKind.ACTED,
        "who": "watchdog",
        "summary": "released the job",
        "mode": Mode.ACT,
    }
    return AuditEvent(**(standard | changes))


class Taken:
    """A trail that takes events, or does not."""

    def __init__(self) -> None:
        self.events: dict[str, AuditEvent] = {}
        self.away = False

    async def record(self, events: Sequence[AuditEvent]) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise AuditUnavailable("PostgreSQL did not take the audit events")
        for event in events:
            self.events.setdefault(event.key, event)


async def test_events_outlive_the_process_and_are_delivered_once_by_the_next(tmp_path: Path) -> None:
    events = [an_event(number) for number in range(250)]
    for event in events:
        await AuditSpool(tmp_path / "spool").record(event)
    trail = Taken()
    assert await AuditSpool(tmp_path / "spool").deliver(trail) == 250
    assert list(trail.events.values()) == events
    assert await AuditSpool(tmp_path / "spool").deliver(trail) == 0


async def test_what_postgresql_does_not_take_stays_on_disk(tmp_path: Path) -> None:
    spool, trail = AuditSpool(tmp_path), Taken()
    await spool.record(an_event())
    trail.away = True
    for _ in range(3):
        with pytest.raises(AuditUnavailable):
            await spool.deliver(trail)
    trail.away = False
    await spool.deliver(trail)
    assert list(trail.events.values()) == [an_event()]
    assert not spool.waiting()


async def test_an_event_that_is_recorded_again_stays_as_it_was_first_told(tmp_path: Path) -> None:
    spool, trail = AuditSpool(tmp_path), Taken()
    await spool.record(an_event(summary="first"))
    await AuditSpool(tmp_path).record(an_event(summary="second"))
    assert len(spool.waiting()) == 1
    await spool.deliver(trail)
    assert [event.summary for event in trail.events.values()] == ["first"]


async def test_two_processes_may_deliver_at_once(tmp_path: Path) -> None:
    trail = Taken()
    for number in range(20):
        await AuditSpool(tmp_path).record(an_event(number))
    await asyncio.gather(*(AuditSpool(tmp_path).deliver(trail) for _ in range(3)))
    assert len(trail.events) == 20
    assert not AuditSpool(tmp_path).waiting()


async def test_a_damaged_file_is_put_aside_and_keeps_no_event_back(tmp_path: Path) -> None:
    spool, trail = AuditSpool(tmp_path), Taken()
    await spool.record(an_event())
    (tmp_path / "damaged.jsonl").write_bytes(b'{"key": "watch\xff')
    await spool.deliver(trail)
    assert len(trail.events) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["damaged.unreadable"]


async def test_a_crash_in_the_middle_of_writing_leaves_no_event(tmp_path: Path) -> None:
    (tmp_path / "tmp1234").write_text('{"key": "watch')
    assert await AuditSpool(tmp_path).deliver(Taken()) == 0


async def test_a_disk_that_takes_nothing_keeps_events_in_memory_until_it_does(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("no directory")
    spool, trail = AuditSpool(place), Taken()
    for number in range(3):
        await spool.record(an_event(number))
    place.unlink()
    await spool.write_again()
    await spool.deliver(trail)
    assert len(trail.events) == 3


async def test_a_disk_that_hangs_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_spool, "WRITE_TIMEOUT_S", 0.05)
    spool = AuditSpool(tmp_path)
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(event: AuditEvent) -> None:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(5)

    monkeypatch.setattr(spool, "_write", hang)
    try:
        async with asyncio.timeout(1):
            for number in range(200):
                await spool.record(an_event(number))
    finally:
        released.set()


async def test_the_spool_is_bounded_and_keeps_what_came_first(tmp_path: Path) -> None:
    spool, trail = AuditSpool(tmp_path, max_events=3), Taken()
    for number in range(10):
        await spool.record(an_event(number))
    assert len(spool.waiting()) == 3
    for _ in range(2):
        await spool.deliver(trail)
        await spool.write_again()
    await spool.deliver(trail)
    assert {"watchdog/0", "watchdog/1", "watchdog/2"} <= set(trail.events)
    assert len(trail.events) == 6


async def test_without_a_database_everything_stays_on_disk(tmp_path: Path) -> None:
    spool = AuditSpool(tmp_path)
    await spool.record(an_event())
    await AuditDelivery(Settings(), spool).deliver()
    assert len(spool.waiting()) == 1


@pytest.fixture(scope="module")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    with open_directory() as directory:
        async with EmbeddedPostgres(directory / "postgres") as server:
            yield server


@pytest.mark.postgres
async def test_a_real_postgresql_gets_each_event_once_however_often_it_is_told(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    settings = Settings(state_dir=tmp_path, audit={"dsn": postgres.dsn})  # type: ignore[arg-type]
    away = Settings(state_dir=tmp_path, audit={"dsn": "postgresql://relight@127.0.0.1:1/relight"})  # type: ignore[arg-type]
    spool = AuditSpool(tmp_path / SPOOL)
    for number in range(5):
        await spool.record(an_event(number))
    await AuditDelivery(away, spool).deliver()
    assert len(spool.waiting()) == 5
    await AuditDelivery(settings, AuditSpool(tmp_path / SPOOL)).deliver()
    await spool.record(an_event(4))
    await AuditDelivery(settings, spool).deliver()
    assert not spool.waiting()
    trail = AuditTrail(postgres.dsn)
    try:
        page = await trail.events_of_job(JOB.cluster, JOB.job_id)
    finally:
        await trail.close()
    assert [event.key for event in page.events] == [f"watchdog/{number}" for number in range(5)]
