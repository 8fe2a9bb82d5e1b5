"""What the scheduler's answers mean to a watch, and that its silence means nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.findings import Ended, Faulted, Gone, SightChanged
from activities.scheduler.protocol import JobState
from activities.snapshot import ClusterSnapshots
from tests.watch.conftest import StartWatch
from tests.watch.scripted import JOB_ID, XID, JobUnderWatch, iteration, submitted_at


async def test_a_job_id_that_another_job_has_now_is_gone(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    assert await watch.silent_for(0.2)
    job.shows(JobState.RUNNING, 0, submitted_at=submitted_at(0) + timedelta(days=9))
    gone = await watch.finding()
    assert isinstance(gone, Gone)
    assert "another job" in gone.detail


async def test_a_lower_restart_count_is_another_job_too(job: JobUnderWatch, start: StartWatch) -> None:
    job.shows(JobState.RUNNING, 0, submitted_at=submitted_at(9))
    assert isinstance(await start(job.order(2)).finding(), Gone)


async def test_a_job_that_one_reading_left_out_is_asked_for_by_itself(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    assert await watch.silent_for(0.2)
    job.scheduler.unlisted[JOB_ID] = job.scheduler.listed.pop(JOB_ID)
    assert await watch.silent_for(0.3)
    assert job.scheduler.asked_for
    job.scheduler.unlisted[JOB_ID] = job.record.model_copy(update={"state": JobState.FAILED})
    assert isinstance(await watch.finding(), Ended)


async def test_a_listed_job_is_never_asked_for_by_itself(job: JobUnderWatch, start: StartWatch) -> None:
    assert await start().silent_for(0.4)
    assert not job.scheduler.asked_for


async def test_a_job_that_the_scheduler_does_not_know_is_gone(job: JobUnderWatch, start: StartWatch) -> None:
    job.scheduler.listed.clear()
    await job.seen_by_the_poller()
    assert isinstance(await start().finding(), Gone)
    assert job.scheduler.asked_for == [JOB_ID]


async def test_silence_of_the_scheduler_is_blindness_and_never_an_end(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(blind_after_s=0.5)
    assert await watch.silent_for(0.2)
    job.scheduler.silent = True
    job.scheduler.listed.clear()
    assert await watch.silent_for(0.4)
    blind = await watch.finding()
    assert isinstance(blind, SightChanged)
    assert blind.blind_since == job.snapshots.silent_since
    assert blind.reason == "the scheduler gives no answer: Socket timed out on send/recv operation"

    order = job.order_after(job.order(), blind, blind_since=blind.blind_since)
    watch = start(order, blind_after_s=0.5)
    assert await watch.silent_for(1.0)
    job.shows()
    job.scheduler.silent = False
    seen = await watch.finding()
    assert isinstance(seen, SightChanged)
    assert seen.blind_since is None
    assert await start(job.order_after(order, seen, blind_since=None), blind_after_s=0.5).silent_for(0.7)


async def test_a_new_worker_that_has_not_heard_the_scheduler_yet_does_not_claim_sight(
    job: JobUnderWatch, start: StartWatch
) -> None:
    job.snapshots = ClusterSnapshots("c1", job.scheduler, 60.0)  # type: ignore[arg-type]
    assert await start(job.order(blind_since=submitted_at(0))).silent_for(0.4)


async def test_a_job_that_only_the_list_lacks_is_not_seen_while_nobody_answers_for_it(
    job: JobUnderWatch, start: StartWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer(job_id: str) -> None:
        job.scheduler.silent = True
        job.scheduler._answer()

    monkeypatch.setattr(job.scheduler, "job", no_answer)
    job.scheduler.listed.clear()
    await job.seen_by_the_poller()
    assert await start(job.order(blind_since=submitted_at(0))).silent_for(0.4)


async def test_the_log_is_watched_on_while_the_scheduler_is_silent(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    assert await watch.silent_for(0.2)
    job.scheduler.silent = True
    job.writes(iteration(1), XID)
    faulted = await watch.finding()
    assert isinstance(faulted, Faulted)
    assert faulted.record.state is JobState.RUNNING


async def test_a_pending_job_is_waited_for(job: JobUnderWatch, start: StartWatch) -> None:
    job.log.unlink()
    job.shows(JobState.PENDING, nodes=(), started_at=None)
    watch = start(blind_after_s=0.2)
    assert await watch.silent_for(0.6)
    job.writes(XID)
    job.shows(JobState.RUNNING)
    assert isinstance(await watch.finding(), Faulted)
