"""Jobs that wait for another one to succeed: which of them never will start, because it failed for good.

They are other people's jobs, perhaps, and nobody asked relight to touch them: they are told of, and left as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from pydantic import Field
from temporalio import activity

from activities.scheduler.protocol import ClusterReading, JobRecord, JobState
from activities.snapshot import ClusterSnapshots
from recovery.model import JobId, JobKey, Value

NAMED_JOBS = 20
READING_TIMEOUT_S = 10.0
"""How long to wait for a reading that shows what became of the job; then the newest one has to do."""


class ChainOrder(Value):
    """Whose dependents to look for, now that it does not come back: nothing that needs its success can start."""

    job: JobKey
    since: datetime
    """When the job was answered: an older reading does not show what that led to."""


class Stranded(Value):
    """The jobs that can't start any more."""

    jobs: tuple[JobId, ...] = Field(default=(), max_length=NAMED_JOBS)
    """The first of them."""
    count: int = Field(default=0, ge=0)

    def __str__(self) -> str:
        """Name them, for people."""
        more = self.count - len(self.jobs)
        return ", ".join(self.jobs) + (f" and {more} more" if more else "")


class ChainReader:
    """Looks for dependents in the readings of one cluster, as a Temporal activity."""

    def __init__(self, snapshots: ClusterSnapshots) -> None:
        self._snapshots = snapshots

    @activity.defn
    async def find_stranded(self, order: ChainOrder) -> Stranded:
        """Return the pending jobs that can't start any more because the job of `order` failed for good."""
        reading: ClusterReading | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(READING_TIMEOUT_S):
                reading = await self._snapshots.newer_than(order.since)
        reading = reading or self._snapshots.reading
        return stranded_by(order.job.job_id, reading.jobs if reading else (), for_good=True)


def stranded_by(job_id: JobId, jobs: Iterable[JobRecord], *, for_good: bool) -> Stranded:
    """Return which pending ones of `jobs` can't start any more because the job `job_id` failed. `for_good`: it does not
    come back."""
    lost = [
        job.job_id
        for job in jobs
        if job.state is JobState.PENDING and job.dependency.is_lost(job_id, for_good=for_good)
    ]
    return Stranded(jobs=tuple(lost[:NAMED_JOBS]), count=len(lost))
