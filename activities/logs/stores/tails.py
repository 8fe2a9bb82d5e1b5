"""New lines as a store pushes them, a few connections for all jobs.

Pushing is for speed only: a store may leave out what it pushes, and a connection may die unseen, so that the reader
asks for the same lines again, now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import structlog

from activities.logs.stores.protocol import Entry, LogStore
from activities.stores.errors import StoreBusy, StoreError

log = structlog.get_logger(__name__)

REARRANGE_S = 10.0
"""Connections are not made anew more often than this, however often jobs come and go."""
OVERLAP_S = 5.0
"""How far back a new connection begins."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 1.0, 60.0


class Tails:
    """The connections over which one store pushes."""

    def __init__(
        self,
        store: LogStore,
        name: str,
        most_jobs: int,
        accept: Callable[[list[Entry]], None],
        lost: Callable[[int], None],
    ) -> None:
        self._store = store
        self._name = name
        self._most_jobs = most_jobs
        self._accept = accept
        self._lost = lost
        self._sessions: list[asyncio.Task[None]] = []
        self._wanted: frozenset[str] = frozenset()
        self._live: set[str] = set()
        self._arranged_s = float("-inf")

    def covers(self, job_id: str) -> bool:
        """Whether the store pushes the job's lines."""
        return job_id in self._live

    async def cover(self, job_ids: Sequence[str]) -> None:
        """Let the store push the lines of these jobs, soon."""
        wanted = frozenset(job_ids)
        now_s = time.monotonic()
        if wanted <= self._wanted and 2 * len(wanted) >= len(self._wanted):
            return
        if now_s - self._arranged_s < REARRANGE_S:
            return
        await self.close()
        self._wanted, self._arranged_s = wanted, now_s
        ordered = sorted(wanted)
        for start in range(0, len(ordered), self._most_jobs):
            part = ordered[start : start + self._most_jobs]
            self._sessions.append(asyncio.create_task(self._follow(part), name=f"tail of {self._name}"))

    async def close(self) -> None:
        """End all connections."""
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        self._sessions.clear()
        self._live.clear()
        self._wanted = frozenset()

    async def _follow(self, job_ids: Sequence[str]) -> None:
        pause_s = _LEAST_PAUSE_S
        while True:
            begun_s = time.monotonic()
            try:
                await self._listen(job_ids)
                pause_s = _LEAST_PAUSE_S
            except StoreBusy as busy:
                pause_s = busy.retry_after_s
            except StoreError as error:
                if time.monotonic() - begun_s > _MOST_PAUSE_S:
                    pause_s = _LEAST_PAUSE_S
                log.info("the log store does not push; it is asked instead", store=self._name, error=str(error))
            finally:
                self._live.difference_update(job_ids)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    async def _listen(self, job_ids: Sequence[str]) -> None:
        since_ns = time.time_ns() - int(OVERLAP_S * 1e9)
        async with contextlib.aclosing(self._store.push(job_ids, since_ns)) as pushes:
            async for pushed in pushes:
                self._live.update(job_ids)
                self._accept(pushed.entries)
                if pushed.left_out:
                    self._lost(pushed.left_out)
