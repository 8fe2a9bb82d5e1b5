"""Lines that collectors kept back while a store, or the way to it, was away."""

from __future__ import annotations

import asyncio
import time

import pytest

from activities.logs.protocol import LogCursor, StorePosition
from activities.logs.stores.backlog import CATCH_UP_S, MOST_BACK_S, Backlog
from activities.logs.stores.source import StoreLogs
from tests.logs.conformance import JOB_IDS, at_least, reads, texts
from tests.stores.servers import running_store, shipping

SECOND_NS = 1_000_000_000
LATE_S = 15
BEGIN_NS = 1_000_000 * SECOND_NS


def at(seconds: float) -> int:
    return BEGIN_NS + int(seconds * SECOND_NS)


def test_while_lines_flow_all_is_known_but_for_what_may_be_late() -> None:
    backlog = Backlog(LATE_S)
    for second in range(100):
        backlog.hear(at(second), at(second + 1))
    assert backlog.known_ns(at(101)) == at(99 - LATE_S)


def test_behind_the_newest_line_nothing_is_known_however_long_ago_it_was() -> None:
    backlog = Backlog(LATE_S)
    backlog.hear(at(0), at(0))
    assert backlog.known_ns(at(600)) == at(-LATE_S)
    assert backlog.known_ns(at(2 * MOST_BACK_S)) == at(MOST_BACK_S), "what is older is given up"


def test_after_a_gap_its_lines_are_waited_for_and_then_no_longer() -> None:
    backlog = Backlog(LATE_S)
    backlog.hear(at(0), at(0))
    backlog.hear(at(600), at(600))
    for second in range(601, 601 + int(CATCH_UP_S)):
        assert backlog.known_ns(at(second - 1)) == at(-LATE_S)
        backlog.hear(at(second), at(second))
    assert backlog.known_ns(at(601 + CATCH_UP_S)) == at(600 + CATCH_UP_S - LATE_S)


def test_a_gap_with_too_many_lines_is_given_up() -> None:
    backlog = Backlog(LATE_S)
    backlog.hear(at(0), at(0))
    backlog.hear(at(600), at(600))
    backlog.give_up()
    assert backlog.known_ns(at(601)) == at(600 - LATE_S)


async def test_what_comes_long_after_its_time_is_heard_when_nothing_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("activities.logs.stores.reader.SWEEP_S", 1.0)
    with running_store("loki") as store:
        logs = StoreLogs(*store.client(tail=False, late_s=1.0, poll_interval_s=0.5))
        try:
            async with shipping(store) as shipper:
                job_id, begin_ns = next(JOB_IDS), time.time_ns()
                await shipper.ship(job_id, ["before"], at_ns=begin_ns)
                start = LogCursor(source=f"loki:{job_id}", store=StorePosition(begin_ns=begin_ns, since_ns=begin_ns))
                before, cursor = await reads(logs, start, at_least(1))
                await asyncio.sleep(4)
                await shipper.ship(job_id, ["after"], at_ns=time.time_ns())
                after, cursor = await reads(logs, cursor, at_least(1))
                await shipper.ship(job_id, ["kept back"], at_ns=begin_ns + SECOND_NS)
                late, _ = await reads(logs, cursor, at_least(1))
        finally:
            await logs.close()
    assert [texts(lines) for lines in (before, after, late)] == [["before"], ["after"], ["kept back"]]


async def test_a_pushed_line_that_is_too_late_for_any_question_is_counted_as_lost() -> None:
    with running_store("loki") as store:
        logs = StoreLogs(*store.client(late_s=1.0, poll_interval_s=0.5))
        try:
            async with shipping(store) as shipper:
                job_id, begin_ns = next(JOB_IDS), time.time_ns()
                await shipper.ship(job_id, ["before"], at_ns=begin_ns)
                start = LogCursor(source=f"loki:{job_id}", store=StorePosition(begin_ns=begin_ns, since_ns=begin_ns))
                _, cursor = await reads(logs, start, at_least(1))
                async with asyncio.timeout(60):
                    while cursor.store is None or not cursor.store.lost:
                        await shipper.ship(job_id, ["now"], at_ns=time.time_ns())
                        await shipper.ship(job_id, [f"late {time.time_ns()}"], at_ns=begin_ns + 1)
                        await asyncio.sleep(0.5)
                        cursor = (await logs.read(cursor)).cursor
        finally:
            await logs.close()
    assert logs.reader.lost_lines == cursor.store.lost
