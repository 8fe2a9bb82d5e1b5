"""A watch is left by one worker and taken up by the next: nothing is lost and nothing counted twice."""

from __future__ import annotations

import asyncio
import time

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.findings import Ended, Faulted
from activities.scheduler.protocol import JobState
from tests.watch.conftest import StartWatch
from tests.watch.scripted import XID, JobUnderWatch, iteration, loaded, saved


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.PENDING])
async def test_a_worker_that_shuts_down_hands_over_at_once(
    state: JobState, job: JobUnderWatch, start: StartWatch
) -> None:
    job.shows(state)
    watch = start()
    assert await watch.silent_for(0.3)
    began = time.monotonic()
    watch.environment.worker_shutdown()
    with pytest.raises(ApplicationError) as handed_over:
        await watch.finding()
    assert time.monotonic() - began < 1
    assert handed_over.value.category is ApplicationErrorCategory.BENIGN
    assert not handed_over.value.non_retryable


async def test_a_cancelled_watch_ends_at_once(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    assert await watch.silent_for(0.2)
    began = time.monotonic()
    watch.environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch.finding()
    assert time.monotonic() - began < 1


async def test_the_next_worker_counts_no_line_twice_and_misses_none(job: JobUnderWatch, start: StartWatch) -> None:
    job.shows(JobState.RUNNING, 1)
    watch = start(job.order(1))
    await watch.heard(lambda memory: bool(memory.began))
    job.writes(loaded(30))
    heartbeat = None
    for first in (31, 36, 41):
        await job.trains(first, first + 4, every_s=0.06)
        await watch.heard(lambda memory, last=first + 4: memory.monitor.progress.iteration == last)  # type: ignore[misc]
        heartbeat = watch.heartbeats[-1]
        await watch.stop()
        job.writes(f"between two workers, after {first + 4}")
        watch = start(job.order(1), heartbeat=heartbeat)
    job.writes(iteration(46), saved(46))
    job.shows(JobState.FAILED, 1)
    ended = await watch.finding()
    assert isinstance(ended, Ended)
    progress = ended.progress
    assert (progress.resumed_from, progress.first_iteration) == (30, 31)
    assert (progress.iteration, progress.checkpoint) == (46, 46)
    assert ended.logs[0].line == len(job.log.read_text().splitlines())


async def test_lines_read_after_the_last_heartbeat_are_read_again(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    await job.trains(1, 3)
    kept = await watch.heard(lambda memory: memory.monitor.progress.iteration == 3)
    job.writes(iteration(4), XID)
    assert isinstance(await watch.finding(), Faulted)
    again = await start(heartbeat=kept.model_dump(mode="json")).finding()
    assert isinstance(again, Faulted)
    assert not again.certain
    assert again.evidence[0].line == 5
    assert again.progress.iteration == 4


async def test_a_heartbeat_of_another_version_is_no_reason_to_fail(job: JobUnderWatch, start: StartWatch) -> None:
    job.writes(iteration(1), XID)
    faulted = await start(heartbeat={"monitor": {"phase": "unheard of"}, "logs": "none"}).finding()
    assert isinstance(faulted, Faulted)
    assert faulted.progress.iteration == 1
