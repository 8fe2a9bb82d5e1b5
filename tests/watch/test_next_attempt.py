"""What an attempt still writes while it is being ended never counts for the attempt after it."""

from __future__ import annotations

from activities.findings import Faulted, Reached, Stalled
from activities.scheduler.protocol import JobState
from recovery.model import MilestoneKind
from tests.watch.conftest import StartWatch
from tests.watch.scripted import QUICK, XID, JobUnderWatch, iteration, loaded, saved


async def _stalls(job: JobUnderWatch, start: StartWatch) -> Stalled:
    watch = start(settings=QUICK.model_copy(update={"hang_after_s": 1.0, "settle_s": 0.1}))
    await job.trains(1, 3)
    job.writes(saved(3))
    found = await watch.finding()
    assert isinstance(found, Stalled)
    return found


async def test_the_last_words_of_a_killed_attempt_are_no_fault_of_the_next(
    job: JobUnderWatch, start: StartWatch
) -> None:
    stalled = await _stalls(job, start)
    # The killed ranks still shout into the file that the next attempt will append to.
    job.writes(XID, "[rank0]: RuntimeError: NCCL error: remote process exited or there was a network error")
    job.shows(JobState.PENDING, 1)
    order = job.order_of_next_attempt(stalled, 1, report_start=True)
    watch = start(order)
    assert await watch.silent_for(0.3)
    job.shows(JobState.RUNNING, 1)
    allocated = await watch.finding()
    assert isinstance(allocated, Reached)

    order = job.order_after(order, allocated, allocated=True)
    watch = start(order)
    assert await watch.silent_for(0.6), "a slow start-up confirms nothing"
    job.writes(loaded(3), iteration(4))
    resumed = await watch.finding()
    assert isinstance(resumed, Reached)
    assert resumed.milestone.kind is MilestoneKind.RESUMED
    assert resumed.progress.resumed_from == 3


async def test_the_first_words_of_an_attempt_that_started_already_are_heard(
    job: JobUnderWatch, start: StartWatch
) -> None:
    stalled = await _stalls(job, start)
    job.shows(JobState.RUNNING, 1)
    job.writes(XID)
    watch = start(job.order_of_next_attempt(stalled, 1, report_start=True, allocated=True))
    assert isinstance(await watch.finding(), Faulted)


async def test_a_file_that_cannot_be_read_for_a_while_is_not_begun_from_its_start(
    job: JobUnderWatch, start: StartWatch
) -> None:
    stalled = await _stalls(job, start)
    job.writes(XID)
    hidden = job.log.rename(job.log.with_name("hidden"))
    job.log.mkdir()
    job.shows(JobState.PENDING, 1)
    watch = start(job.order_of_next_attempt(stalled, 1, report_start=True, allocated=True))
    assert await watch.silent_for(0.3)
    assert watch.memory.began == stalled.logs
    job.log.rmdir()
    hidden.rename(job.log)
