"""How long jobs are held by a requeue, seen from outside: reading after reading of all jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from activities.scheduler.protocol import ClusterReading, Hold, JobFlag, SchedulerError
from tests.chaos.records import Held

LOOK_EVERY_S = 1.0


class HoldWatch:
    """All such holds of one cluster. `seen` has them with the times of the first and the last reading."""

    def __init__(self, read: Callable[[], Awaitable[ClusterReading]]) -> None:
        self._read = read
        self._seen: dict[tuple[str, int], Held] = {}

    @property
    def seen(self) -> tuple[Held, ...]:
        return tuple(self._seen.values())

    async def watch(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            with suppress(SchedulerError):
                self._take_in(await self._read())
            await asyncio.sleep(LOOK_EVERY_S)

    def _take_in(self, reading: ClusterReading) -> None:
        for job in reading.jobs:
            if job.hold is not Hold.REQUEUED or job.state.ended or JobFlag.COMPLETING in job.flags:
                continue
            key = (job.job_id, job.restart_count)
            first = self._seen.get(key)
            since = first.since if first else reading.read_at
            self._seen[key] = Held(
                job_id=job.job_id, restart_count=job.restart_count, since=since, until=reading.read_at
            )
