"""Reads that many share: as fresh as one's own, and few."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from activities.scheduler.protocol import (
    ClusterReading,
    JobRecord,
    JobState,
    JobUnknown,
    NodeRecord,
    SchedulerUnavailable,
)
from activities.scheduler.shared_reads import SharedReads
from activities.scheduler.site import Partition, Reservation

SUBMITTED = datetime(2026, 3, 1, tzinfo=UTC)


class SlowScheduler:
    """Each call takes a while, and shows the restart count of the moment at which it began."""

    def __init__(self) -> None:
        self.restart_count = 0
        self.listed = [str(number) for number in range(1, 101)]
        self.calls: list[str] = []
        self.silent = False

    async def jobs(self) -> ClusterReading:
        jobs = tuple(self._record(job_id) for job_id in self.listed)
        await self._answer("jobs")
        return ClusterReading(read_at=datetime.now(UTC), jobs=jobs)

    async def job(self, job_id: str) -> JobRecord:
        record = self._record(job_id)
        await self._answer(f"job {job_id}")
        if job_id not in self.listed:
            raise JobUnknown(job_id)
        return record

    async def nodes(self) -> tuple[NodeRecord, ...]:
        await self._answer("nodes")
        return (NodeRecord(name="node01", states=frozenset({"IDLE"})),)

    def _record(self, job_id: str) -> JobRecord:
        return JobRecord(
            job_id=job_id, state=JobState.PENDING, restart_count=self.restart_count, submitted_at=SUBMITTED
        )

    async def _answer(self, call: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(0.02)
        if self.silent:
            raise SchedulerUnavailable("no answer")


class SlowSite(SlowScheduler):
    """The same, of a transport that tells of its site."""

    async def partitions(self) -> tuple[Partition, ...]:
        await self._answer("partitions")
        return ()

    async def reservations(self) -> tuple[Reservation, ...]:
        await self._answer("reservations")
        return ()


@pytest.fixture
def scheduler() -> SlowScheduler:
    return SlowScheduler()


@pytest.fixture
def reads(scheduler: SlowScheduler) -> SharedReads:
    return SharedReads(scheduler)  # type: ignore[arg-type]


async def test_one_that_reads_alone_reads_only_its_job(scheduler: SlowScheduler, reads: SharedReads) -> None:
    assert (await reads.job("7")).job_id == "7"
    assert scheduler.calls == ["job 7"]


async def test_many_share_a_few_bulk_reads(scheduler: SlowScheduler, reads: SharedReads) -> None:
    records = await asyncio.gather(*(reads.job(str(number)) for number in range(1, 101)))

    assert [record.job_id for record in records] == scheduler.listed
    assert scheduler.calls.count("jobs") == 1
    assert len(scheduler.calls) <= 3


async def test_no_answer_is_older_than_its_question(scheduler: SlowScheduler, reads: SharedReads) -> None:
    async def change_and_read(number: int) -> None:
        for _ in range(10):
            scheduler.restart_count += 1
            asked_at = scheduler.restart_count
            record = await reads.job(str(number))
            assert record.restart_count >= asked_at
            await asyncio.sleep(0.003 * number)

    await asyncio.gather(*(change_and_read(number) for number in range(1, 21)))
    assert len(scheduler.calls) < 200 / 2


async def test_a_read_without_an_answer_is_one_for_all_who_share_it_and_the_next_is_tried_anew(
    scheduler: SlowScheduler, reads: SharedReads
) -> None:
    scheduler.silent = True
    answers = await asyncio.gather(*(reads.job(str(number)) for number in range(1, 11)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {SchedulerUnavailable}

    scheduler.silent = False
    records = await asyncio.gather(*(reads.job(str(number)) for number in range(1, 11)))
    assert len(records) == 10


async def test_a_job_that_no_bulk_read_lists_is_asked_for_by_itself(
    scheduler: SlowScheduler, reads: SharedReads
) -> None:
    answers = await asyncio.gather(*(reads.job(str(number)) for number in range(91, 111)), return_exceptions=True)

    assert [isinstance(answer, JobUnknown) for answer in answers] == [False] * 10 + [True] * 10


async def test_one_who_gives_up_takes_nobody_elses_answer_away(scheduler: SlowScheduler, reads: SharedReads) -> None:
    asking = [asyncio.create_task(reads.job(str(number))) for number in range(1, 11)]
    await asyncio.sleep(0)
    asking[5].cancel()

    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert [type(answer) for answer in answers].count(JobRecord) == 9


async def test_the_nodes_are_read_once_for_all_who_ask_meanwhile(scheduler: SlowScheduler, reads: SharedReads) -> None:
    await asyncio.gather(*(reads.nodes() for _ in range(50)))

    assert scheduler.calls == ["nodes"]


async def test_many_who_ask_for_the_nodes_one_after_the_other_share_few_reads(
    scheduler: SlowScheduler, reads: SharedReads
) -> None:
    async def ask(after_s: float) -> None:
        await asyncio.sleep(after_s)
        await reads.nodes()

    await asyncio.gather(*(ask(number * 0.03) for number in range(30)))
    assert len(scheduler.calls) <= 5


async def test_the_reservations_are_read_once_for_all_who_ask_meanwhile() -> None:
    site = SlowSite()
    reads = SharedReads(site)  # type: ignore[arg-type]
    await asyncio.gather(*(reads.reservations() for _ in range(50)))
    assert site.calls == ["reservations"]


async def test_a_transport_without_reservations_says_so(reads: SharedReads) -> None:
    with pytest.raises(SchedulerUnavailable, match="does not tell of reservations"):
        await reads.reservations()
