"""One bulk read per interval, whatever the number of those who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from activities.scheduler.protocol import (
    ClusterReading,
    JobRecord,
    JobState,
    NotPermitted,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.snapshot import LONGEST_PAUSE_IN_SILENCE_S, LONGEST_PAUSE_S, ClusterSnapshots, pause_after

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
INTERVAL_S = 0.05


class Answers:
    """A scheduler that is asked for all jobs and nothing else: each reading lists one job more."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: SchedulerError | None = None
        self.takes_s = 0.0

    async def jobs(self) -> ClusterReading:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        jobs = (
            JobRecord(job_id=str(n), state=JobState.RUNNING, submitted_at=START, name=f"reading {number}")
            for n in range(1, number + 1)
        )
        return ClusterReading(read_at=START + timedelta(seconds=number), jobs=tuple(jobs))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def snapshots(answers: Answers) -> AsyncIterator[ClusterSnapshots]:
    snapshots = ClusterSnapshots("alpha", answers, INTERVAL_S)  # type: ignore[arg-type]
    task = asyncio.create_task(snapshots.run())
    yield snapshots
    assert not task.done(), "the reading has ended"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def newest(snapshots: ClusterSnapshots, read_at: datetime | None = None) -> ClusterReading:
    async with asyncio.timeout(5):
        return await snapshots.newer_than(read_at)


async def test_before_the_first_answer_nothing_is_known(answers: Answers) -> None:
    snapshots = ClusterSnapshots("alpha", answers, INTERVAL_S)  # type: ignore[arg-type]

    assert snapshots.reading is None
    assert snapshots.find("1") is None
    assert snapshots.silent_since is None
    assert snapshots.silent_because == ""


async def test_five_hundred_waiters_cost_one_read_and_all_get_it(answers: Answers, snapshots: ClusterSnapshots) -> None:
    first = await newest(snapshots)
    asked = answers.asked

    readings = await asyncio.gather(*(newest(snapshots, first.read_at) for _ in range(500)))

    assert all(reading.read_at > first.read_at for reading in readings)
    assert answers.asked - asked <= 3


async def test_the_scheduler_is_asked_once_an_interval(answers: Answers, snapshots: ClusterSnapshots) -> None:
    loop = asyncio.get_running_loop()
    await newest(snapshots)
    asked, began = answers.asked, loop.time()

    await asyncio.sleep(INTERVAL_S * 8)

    assert answers.asked - asked <= (loop.time() - began) / INTERVAL_S + 1
    assert answers.asked - asked >= 2


async def test_reads_never_overlap_when_an_answer_takes_longer_than_an_interval(
    answers: Answers, snapshots: ClusterSnapshots
) -> None:
    first = await newest(snapshots)
    answers.takes_s = INTERVAL_S * 3
    loop = asyncio.get_running_loop()
    asked, began = answers.asked, loop.time()

    await newest(snapshots, first.read_at + timedelta(seconds=2))

    assert answers.asked - asked <= (loop.time() - began) / answers.takes_s + 1


async def test_a_job_is_found_as_the_newest_reading_tells_of_it(snapshots: ClusterSnapshots) -> None:
    first = await newest(snapshots)
    second = await newest(snapshots, first.read_at)

    job = snapshots.find("1")
    assert job is not None
    assert job in second.jobs
    assert snapshots.find("999") is None
    assert snapshots.reading == second


async def test_whoever_has_not_seen_the_newest_reading_does_not_wait(snapshots: ClusterSnapshots) -> None:
    reading = await newest(snapshots)

    assert (await newest(snapshots, reading.read_at - timedelta(seconds=1))).read_at >= reading.read_at


@pytest.mark.parametrize("error", [SchedulerUnavailable("Socket timed out"), NotPermitted("Access/permission denied")])
async def test_while_there_is_no_answer_the_last_reading_stands_with_its_age(
    error: SchedulerError, answers: Answers, snapshots: ClusterSnapshots
) -> None:
    before = await newest(snapshots)
    answers.error = error
    waiting = asyncio.create_task(snapshots.newer_than(before.read_at + timedelta(hours=1)))
    asked = answers.asked
    while answers.asked < asked + 3:
        await asyncio.sleep(INTERVAL_S / 2)

    silent_since = snapshots.silent_since
    assert silent_since is not None
    assert snapshots.silent_because == str(error)
    assert snapshots.reading is not None
    assert snapshots.find("1") is not None, "unknown is not gone"
    assert not waiting.done()
    waiting.cancel()

    answers.error = None
    await newest(snapshots, snapshots.reading.read_at)
    assert snapshots.silent_since is None


@pytest.mark.parametrize(
    ("took_s", "interval_s", "answered", "pause_s"),
    [
        (0.1, 2.0, True, 1.9),
        (1.0, 2.0, True, 1.0),
        (3.0, 2.0, True, 18.0),
        (11.0, 2.0, True, 90.0),
        (600.0, 2.0, True, LONGEST_PAUSE_S),
        (1.5, 30.0, True, 28.5),
        (0.1, 2.0, False, 1.9),
        (20.0, 2.0, False, LONGEST_PAUSE_IN_SILENCE_S),
    ],
)
def test_the_slower_the_scheduler_answers_the_longer_it_is_left_alone(
    took_s: float, interval_s: float, answered: bool, pause_s: float
) -> None:
    assert pause_after(took_s, interval_s, before_s=took_s, answered=answered) == pytest.approx(pause_s)


@pytest.mark.parametrize(("took_s", "before_s"), [(6.0, 0.1), (0.1, 6.0)])
def test_one_slow_answer_alone_is_no_reason_to_look_away(took_s: float, before_s: float) -> None:
    assert pause_after(took_s, 2.0, before_s=before_s, answered=True) == max(0.0, 2.0 - took_s)


async def test_a_slow_scheduler_is_asked_less_often_and_the_log_says_so_once(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.snapshot.FORGIVEN_S", 0.0)
    answers.takes_s = INTERVAL_S * 2
    snapshots = ClusterSnapshots("alpha", answers, INTERVAL_S)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as said:
        task = asyncio.create_task(snapshots.run())
        first = await newest(snapshots)
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        second = await newest(snapshots, first.read_at)
        async with asyncio.timeout(10):
            third = await snapshots.newer_than(second.read_at)
        took_s = loop.time() - began
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    assert third.read_at - first.read_at == timedelta(seconds=2), "each reading was asked for once"
    assert took_s > 9 * answers.takes_s
    assert [line["event"] for line in said] == ["the scheduler answers slowly and is asked less often"]
