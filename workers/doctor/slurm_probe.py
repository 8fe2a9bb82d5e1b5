"""The one way to be sure: a tiny job of the caller's own is requeued with an exclusion, as a recovery would.

It is marked by its name and comment, opts in to nothing, and is cancelled at the end whatever happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from activities.scheduler.protocol import (
    Hold,
    JobFlag,
    JobRecord,
    JobState,
    JobUnknown,
    Scheduler,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.submission import Resubmission, Submission
from recovery.model import JobId
from workers.doctor.checks import Check, failed, ok, unknown

NAME = "relight-doctor"
MARK = "relight doctor: a probe, cancelled within minutes"
SUBMISSION = Submission(
    script="#!/bin/sh\nexec sleep 600\n",
    name=NAME,
    comment=MARK,
    node_count=1,
    time_limit=timedelta(minutes=10),
    stdout="/dev/null",
    working_directory="/tmp",  # noqa: S108 - the one directory that every node has; nothing is written there
)
START_S = 60.0
SETTLE_S = 60.0
PAUSE_S = 0.5


class NotSo(Exception):
    """What should be read of the job is not; the message says what is."""


async def probe(scheduler: Scheduler) -> AsyncIterator[Check]:
    """Submit a job, requeue it without its node, verify, and cancel it; yield what each step came to."""
    if not isinstance(scheduler, Resubmission):
        yield unknown("probe", "this transport can't submit a job", "probe through cli or ssh")
        return
    try:
        job_id = await scheduler.submit(SUBMISSION)
    except SchedulerError as error:
        yield failed("probe: submit", str(error), "see that this account may submit to the default partition")
        return
    yield ok("probe: submit", f"job {job_id}")
    try:
        async for check in _requeue_elsewhere(scheduler, job_id):
            yield check
    except (SchedulerError, NotSo) as error:
        yield failed("probe: requeue", str(error), "see the rights above, and scontrol show job")
    finally:
        cancelled = await asyncio.shield(cancel(scheduler, job_id))
    yield cancelled


async def _requeue_elsewhere(scheduler: Scheduler, job_id: JobId) -> AsyncIterator[Check]:
    running = await started(scheduler, job_id)
    yield ok("probe: start", f"runs on {', '.join(running.nodes)}")
    await scheduler.requeue_hold(job_id)
    await _until(scheduler, job_id, _is_held, SETTLE_S, "the probe should be held")
    yield ok("probe: requeue", "requeued in held state")
    await scheduler.constrain(job_id, exclude=running.nodes, admin_comment=MARK)
    constrained = await scheduler.job(job_id)
    if set(constrained.excluded_nodes) != set(running.nodes) or constrained.admin_comment != MARK:
        raise NotSo(f"excluded is {constrained.excluded_nodes}, AdminComment {constrained.admin_comment!r}")
    yield ok("probe: exclude", f"kept off {', '.join(running.nodes)}, AdminComment written")
    await scheduler.release(job_id)
    await _until(scheduler, job_id, lambda job: job.hold is Hold.NONE, SETTLE_S, "the probe should be released")
    yield ok("probe: release", "released, and may start elsewhere")


async def started(scheduler: Scheduler, job_id: JobId) -> JobRecord:
    """Wait until the job runs and return its record. Raises `NotSo`, `SchedulerError`."""
    return await _until(scheduler, job_id, lambda job: job.state is JobState.RUNNING, START_S, "the probe should run")


def _is_held(job: JobRecord) -> bool:
    return job.state is JobState.PENDING and job.hold is Hold.REQUEUED and JobFlag.COMPLETING not in job.flags


async def _until(
    scheduler: Scheduler, job_id: JobId, so: Callable[[JobRecord], bool], within_s: float, wanted: str
) -> JobRecord:
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        job = await scheduler.job(job_id)
        if so(job):
            return job
        if asyncio.get_running_loop().time() > deadline:
            raise NotSo(f"{wanted} after {within_s:.0f} s, and is {job.state.value} ({job.reason or 'no reason'})")
        await asyncio.sleep(PAUSE_S)


async def cancel(scheduler: Scheduler, job_id: JobId) -> Check:
    """Cancel the probe, more than once where the scheduler does not answer."""
    trouble = ""
    for _ in range(5):
        try:
            await scheduler.cancel(job_id)
            return ok("probe: cancel", f"job {job_id} is cancelled")
        except JobUnknown:
            return ok("probe: cancel", f"job {job_id} is over")
        except SchedulerUnavailable as error:
            trouble = str(error)
            await asyncio.sleep(PAUSE_S)
        except SchedulerError as error:
            trouble = str(error)
            break
    return failed("probe: cancel", trouble, f"scancel {job_id}")
