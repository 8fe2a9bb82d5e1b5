"""Finds opted-in jobs in each reading of the cluster, and has them taken under guard."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime

from pydantic import Field
from temporalio import activity

from activities.adopt import Adopter, Guard, Selection
from activities.heartbeats import hand_over_on_shutdown
from activities.scheduler.protocol import JobRecord, JobState
from activities.snapshot import ClusterSnapshots
from recovery.model import JobId, Value
from recovery.optin import OptIn, parse_comment

HEARTBEAT_S = 5.0


class DiscoverOrder(Value):
    """How long to look for jobs before reporting."""

    cluster: str
    lease_s: float = Field(gt=0)


class Discovered(Value):
    """What one lease of looking came to."""

    adopted: int = Field(ge=0)
    """Jobs that it took under guard; those that were so before are not among them."""
    listed: int = Field(ge=0)
    """Jobs in the last reading, opted in or not."""


def wanted(record: JobRecord, selection: Selection) -> OptIn | None:
    """Return how `record` opted in, or None when it is not to be looked after now."""
    optin = parse_comment(record.comment)
    if optin is None or record.state in (JobState.COMPLETED, JobState.CANCELLED):
        return None
    if record.het_leader_id not in ("", record.job_id) or _stands_for_tasks(record):
        return None
    if selection.partitions and record.partition not in selection.partitions:
        return None
    if selection.environment and optin.environment not in ("", selection.environment):
        return None
    return optin


def _stands_for_tasks(record: JobRecord) -> bool:
    """Whether this is what has not started yet of a job array. What is done to that is done to all of its tasks; each
    of them is a job of its own as soon as Slurm takes it apart."""
    return record.array_job_id == record.job_id


class Discovery:
    """Looks for opted-in jobs, as a Temporal activity that runs for hours."""

    def __init__(self, snapshots: ClusterSnapshots, adopter: Adopter, selection: Selection) -> None:
        self._snapshots = snapshots
        self._adopter = adopter
        self._selection = selection

    @activity.defn
    async def discover_jobs(self, order: DiscoverOrder) -> Discovered:
        """Adopt every opted-in job of every reading until the lease is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + order.lease_s * random.uniform(0.9, 1.1)  # noqa: S311 - spreads leases, no secret
        known: dict[JobId, datetime] = {}
        adopted: int = next(iter(activity.info().heartbeat_details), 0)
        listed, read_at = 0, None
        while loop.time() < end:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    reading = await self._snapshots.newer_than(read_at)
            except TimeoutError:
                reading = None
            activity.heartbeat(adopted)
            hand_over_on_shutdown()
            if reading is not None:
                read_at, listed = reading.read_at, len(reading.jobs)
                adopted += await self._adopt_new(reading.jobs, known)
        return Discovered(adopted=adopted, listed=listed)

    async def _adopt_new(self, jobs: tuple[JobRecord, ...], known: dict[JobId, datetime]) -> int:
        """Adopt what is not in `known`, by job id and submit time, and keep that up to date; count what had no guard
        before. A job that is not wanted now may be later: its comment and its partition can be changed."""
        listed = {job.job_id for job in jobs}
        for job_id in known.keys() - listed:
            del known[job_id]
        new = 0
        for record in jobs:
            if known.get(record.job_id) == record.submitted_at:
                continue
            if (optin := wanted(record, self._selection)) is None:
                continue
            guard = await self._adopter.adopt(record, optin)
            if guard is not Guard.NOT_YET:
                known[record.job_id] = record.submitted_at
            new += guard is Guard.TAKEN
        return new
