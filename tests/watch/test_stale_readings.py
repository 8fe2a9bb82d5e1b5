"""A bulk reading is up to an interval old: what it says of a job that moved on since is no news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from activities.attempt_watch import AttemptWatch, WatchMemory
from activities.findings import Gone, WatchOrder
from activities.logs.files import FileTail
from activities.scheduler.protocol import ClusterReading, JobRecord, JobState, JobUnknown, SchedulerUnavailable
from activities.snapshot import ClusterSnapshots
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.settings import DetectionSettings
from recovery.model import JobKey
from recovery.optin import OptIn

SUBMITTED = datetime(2026, 1, 1, 12, tzinfo=UTC)
REQUEUED = SUBMITTED + timedelta(minutes=1)
FIRST_ATTEMPT = JobRecord(job_id="7", state=JobState.FAILED, submitted_at=SUBMITTED)
SECOND_ATTEMPT = JobRecord(job_id="7", state=JobState.PENDING, restart_count=1, submitted_at=REQUEUED)
ORDER = WatchOrder(
    job=JobKey(cluster="c", job_id="7", submitted_at=SUBMITTED), optin=OptIn(), attempt=1, submitted_at=REQUEUED
)


class FrozenScheduler:
    """Its bulk reading shows `listed` for ever; asked for the one job it answers `fresh`, or raises it."""

    def __init__(self, listed: tuple[JobRecord, ...], fresh: JobRecord | Exception) -> None:
        self._listed = listed
        self._fresh = fresh

    async def jobs(self) -> ClusterReading:
        return ClusterReading(read_at=datetime.now(UTC), jobs=self._listed)

    async def job(self, job_id: str) -> JobRecord:
        if isinstance(self._fresh, Exception):
            raise self._fresh
        return self._fresh


@asynccontextmanager
async def watching(listed: tuple[JobRecord, ...], fresh: JobRecord | Exception) -> AsyncIterator[AttemptWatch]:
    scheduler, logs = FrozenScheduler(listed, fresh), FileTail()
    snapshots = ClusterSnapshots("c", scheduler, 60.0)  # type: ignore[arg-type]
    poller = asyncio.create_task(snapshots.run())
    await snapshots.newer_than(None)
    monitor = AttemptMonitor(DetectionSettings(), lambda line: None)
    yield AttemptWatch(ORDER, WatchMemory(), monitor, logs, scheduler, snapshots)  # type: ignore[arg-type]
    poller.cancel()
    await logs.close()


async def test_a_reading_from_before_the_requeue_does_not_make_the_job_gone() -> None:
    async with watching((FIRST_ATTEMPT,), SECOND_ATTEMPT) as watch:
        assert await watch.look() is None


async def test_a_reading_from_the_midst_of_the_requeue_does_not_make_the_job_gone() -> None:
    midway = SECOND_ATTEMPT.model_copy(update={"submitted_at": SUBMITTED})
    async with watching((midway,), SECOND_ATTEMPT) as watch:
        assert await watch.look() is None


async def test_a_job_id_that_another_job_has_now_is_gone() -> None:
    another = FIRST_ATTEMPT.model_copy(update={"submitted_at": REQUEUED + timedelta(days=1)})
    async with watching((another,), another) as watch:
        assert isinstance(await watch.look(), Gone)


async def test_a_job_that_the_scheduler_no_longer_knows_is_gone() -> None:
    async with watching((), JobUnknown("Invalid job id specified")) as watch:
        assert isinstance(await watch.look(), Gone)


async def test_an_unlisted_job_is_not_gone_while_the_scheduler_gives_no_answer() -> None:
    async with watching((), SchedulerUnavailable("timed out")) as watch:
        assert await watch.look() is None
