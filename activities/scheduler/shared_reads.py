"""Fresh reads of a scheduler that many share: acts and attributions of one worker process, in a storm of failures.

One bulk read is under way at a time. Whoever asks meanwhile shares the next one, which begins after the question: so an
answer is as fresh as one of its own would be, and two hundred jobs cost as many reads as fit into the time, not
thousands.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from activities.scheduler.protocol import ClusterReading, JobRecord, NodeRecord, Scheduler, SchedulerUnavailable
from activities.scheduler.site import PlacesReader, Reservation
from recovery.model import JobId

FEW = 2
"""So many a second may read their own job: a bulk read for them would carry all jobs of the cluster for nothing."""
GATHER_S = 0.2
"""How long a bulk read waits for others to share it."""
GATHER_NODES_S = 0.5
"""The same for a read of the nodes or of the reservations, which no act waits for."""

Answer = TypeVar("Answer")


class SharedReads:
    """Reads of one scheduler. Raises what the scheduler's own reads raise, for all who share one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._jobs_rush, self._nodes_rush, self._reservations_rush = _Rush(), _Rush(), _Rush()
        self._jobs: _Together[ClusterReading] = _Together(scheduler.jobs)
        self._nodes: _Together[tuple[NodeRecord, ...]] = _Together(scheduler.nodes)
        self._reservations: _Together[tuple[Reservation, ...]] | None = None
        if isinstance(scheduler, PlacesReader):
            self._reservations = _Together(scheduler.reservations)

    async def job(self, job_id: JobId) -> JobRecord:
        """Read one job freshly. Raises `JobUnknown`."""
        if self._jobs_rush.with_one_more():
            reading = await self._jobs.ask(gather_s=GATHER_S)
            if found := next((job for job in reading.jobs if job.job_id == job_id), None):
                return found
        return await self._scheduler.job(job_id)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Read all nodes freshly."""
        return await self._nodes.ask(gather_s=GATHER_NODES_S if self._nodes_rush.with_one_more() else 0.0)

    async def reservations(self) -> tuple[Reservation, ...]:
        """Read all reservations freshly. Raises `SchedulerUnavailable` also where the transport can't tell of them."""
        if self._reservations is None:
            raise SchedulerUnavailable("this way to the scheduler does not tell of reservations: use kind cli or ssh")
        return await self._reservations.ask(gather_s=GATHER_NODES_S if self._reservations_rush.with_one_more() else 0.0)


class _Rush:
    """Tells whether many ask."""

    def __init__(self) -> None:
        self._asked_at: deque[float] = deque(maxlen=FEW)

    def with_one_more(self) -> bool:
        """Whether more than `FEW` have asked within a second, the one who asks now included."""
        now = time.monotonic()
        many = len(self._asked_at) == FEW and now - self._asked_at[0] < 1
        self._asked_at.append(now)
        return many


class _Together(Generic[Answer]):
    """Makes one call at a time; those who ask before it begins get its answer."""

    def __init__(self, call: Callable[[], Awaitable[Answer]]) -> None:
        self._call = call
        self._under_way = asyncio.Lock()
        self._next: asyncio.Task[Answer] | None = None

    async def ask(self, *, gather_s: float) -> Answer:
        """Return the answer of a call that begins from now on. `gather_s`: how long it waits for others to share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._make_call(gather_s))
            self._next.add_done_callback(_look_at)
        # One who gives up must not take the others' answer away.
        return await asyncio.shield(self._next)

    async def _make_call(self, gather_s: float) -> Answer:
        async with self._under_way:
            await asyncio.sleep(gather_s)
            self._next = None
            return await self._call()


def _look_at(task: asyncio.Task[Answer]) -> None:
    """An error that nobody waits for any more is none."""
    if not task.cancelled():
        task.exception()
