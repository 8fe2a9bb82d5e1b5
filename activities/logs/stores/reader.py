"""Reads one store for all jobs that a process follows: a few questions per interval, whatever the number of jobs.

Jobs are asked for together, those first whose lines are known least far. A question begins `late_s` before the last one
ended, because lines may arrive later than their times say, and further back after a gap (see
`activities.logs.stores.backlog`); what came before is passed over. While the store pushes a job's lines it is asked for
them only every `SWEEP_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import structlog

from activities.blindness import Blindness, blind, moment
from activities.logs.protocol import SourceState, StorePosition
from activities.logs.stores.backlog import Backlog
from activities.logs.stores.followed import FollowedJob
from activities.logs.stores.paging import Pager
from activities.logs.stores.protocol import Entry, LogStore, Window
from activities.logs.stores.settings import StoreSettings
from activities.logs.stores.tails import Tails
from activities.stores.errors import StoreBusy, StoreError

log = structlog.get_logger(__name__)

SWEEP_S = 15.0
GATHER_S = 0.1
"""How long jobs that begin to be followed wait for others, to be asked for together."""
FORGET_S = 60.0
"""A job that nobody has read for so long is not followed any more."""
MOST_PAGES = 10
"""Of one batch in one round, so that a flood does not keep the other jobs waiting."""
FUTURE_S = 300.0
"""How far a node's clock may be ahead."""
LEAST_FRESH_S = 30.0
"""How old the last answer may be before the store counts as out of sight, at least."""
CANARY_S = 5.0
"""How old the newest line may be before the store is asked for a newer one of any job."""
WARN_AGAIN_S = 300.0
_SPREAD_NS = 60 * 1_000_000_000
_LEAST_PAUSE_S, _MOST_PAUSE_S = 1.0, 30.0


class StoreReader:
    """Follows jobs in one store. It begins with the first job and ends with `close`."""

    def __init__(self, store: LogStore, settings: StoreSettings) -> None:
        self._store = store
        self._settings = settings
        self._pager = Pager(store)
        self._tails = Tails(store, settings.called, settings.max_jobs_per_query, self._accept_pushed, self._ask_again)
        self._jobs: dict[str, FollowedJob] = {}
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._backlog = Backlog(settings.late_s)
        self._newest_ns: int | None = None
        self._canary_s = float("-inf")
        self._trouble = ""
        self._trouble_since = datetime.now(UTC)
        self._warned = ("", float("-inf"))
        self.questions = 0
        """How many pages the store was asked for, and canaries."""
        self.lost_lines = 0
        """How many lines are known to be lost: they came too late, or were too many at one moment."""

    def follow(self, job_id: str, position: StorePosition) -> FollowedJob:
        """Return what has arrived of a job, at least from `position` on; from now on its lines are asked for."""
        job = self._jobs.get(job_id)
        if job is None or not job.can_serve(position):
            job = self._jobs[job_id] = FollowedJob(position)
            self._wake.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name=f"reader of {self._settings.called}")
        return job

    def sight(self, job: FollowedJob) -> tuple[SourceState, str]:
        """Return whether silence of a job's lines means anything, and why not, for people."""
        fresh_s = max(LEAST_FRESH_S, 3 * self._settings.poll_interval_s)
        looked_s = time.monotonic() if job.looked_s is None and not self._trouble else job.looked_s
        if looked_s is None or time.monotonic() - looked_s > fresh_s:
            return SourceState.UNREADABLE, self._trouble or f"{self._settings.called} has not answered for long"
        if job.looked_s is not None and self._is_stale():
            return SourceState.STALE, f"{self._settings.called} has no new line of any job{self._since()}: {_ASK}"
        return SourceState.FRESH, ""

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """The store, while it can't be seen and jobs are followed in it."""
        if not self._jobs:
            return ()
        if self._trouble:
            return (blind(self._settings.called, self._trouble_since, self._trouble),)
        if self._newest_ns is not None and self._is_stale():
            return (blind(self._settings.called, moment(self._newest_ns), f"no new line of any job: {_ASK}"),)
        return ()

    def is_pushed(self, job_id: str) -> bool:
        """Whether the store pushes the job's lines now."""
        return self._tails.covers(job_id)

    def unknown_for_s(self, job: FollowedJob) -> float:
        """Return for how long a job may have spoken unheard: since the store last answered for it, and since the newest
        line of all, for what comes later may not have reached the store."""
        if job.looked_s is None or self._newest_ns is None:
            return 0.0
        return max(0.0, time.monotonic() - job.looked_s, (time.time_ns() - self._newest_ns) / 1e9)

    async def close(self) -> None:
        """Stop reading."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._tails.close()
        await self._store.close()

    async def _run(self) -> None:
        pause_s = _LEAST_PAUSE_S
        await asyncio.sleep(GATHER_S)
        while True:
            try:
                behind = await self._look()
                self._note_answer()
                pause_s = _LEAST_PAUSE_S
                await self._rest(0 if behind else self._settings.poll_interval_s)
            except StoreBusy as busy:
                self._note_trouble(busy)
                await asyncio.sleep(busy.retry_after_s)
            except StoreError as error:
                self._note_trouble(error)
                await asyncio.sleep(pause_s)
                # Whoever waits for the store's return should not wait for us.
                pause_s = min(2 * pause_s, _MOST_PAUSE_S, max(_LEAST_PAUSE_S, self._settings.poll_interval_s))

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        await asyncio.sleep(GATHER_S)

    async def _look(self) -> bool:
        """Ask for what is due. Return whether there is more to ask for at once."""
        now_s = time.monotonic()
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if now_s - (job.read_s or now_s) <= FORGET_S}
        if self._settings.tail:
            await self._tails.cover(tuple(self._jobs))
        for batch in self._batches([job_id for job_id, job in self._jobs.items() if self._is_due(job_id, job, now_s)]):
            await self._ask(batch)
        await self._look_for_canary()
        return any(job.looked_s is not None and not job.complete and not job.full for job in self._jobs.values())

    def _is_due(self, job_id: str, job: FollowedJob, now_s: float) -> bool:
        if job.full:
            return False
        every_s = SWEEP_S if self._tails.covers(job_id) else self._settings.poll_interval_s
        return job.looked_s is None or not job.complete or now_s - job.looked_s > every_s - 2 * GATHER_S

    def _batches(self, job_ids: Sequence[str]) -> list[list[str]]:
        """Those together whose lines are known about equally far."""
        batches: list[list[str]] = []
        for job_id in sorted(job_ids, key=lambda job_id: self._jobs[job_id].next_ns):
            first = self._jobs[batches[-1][0]] if batches else None
            apart = first is None or self._jobs[job_id].next_ns - first.next_ns > _SPREAD_NS
            if apart or len(batches[-1]) >= self._settings.max_jobs_per_query:
                batches.append([])
            batches[-1].append(job_id)
        return batches

    async def _ask(self, job_ids: Sequence[str]) -> None:
        now_ns = time.time_ns()
        jobs = {job_id: self._jobs[job_id] for job_id in job_ids}
        window = Window(min(job.next_ns for job in jobs.values()), now_ns + int(FUTURE_S * 1e9))
        pages = 0
        reached_ns = window.start_ns
        async with aclosing(self._pager.forward(job_ids, window)) as found:
            async for page in found:
                self.questions += 1
                self._accept(page.entries)
                if page.skipped:
                    self._note_skipped(page.entries)
                reached_ns, pages = page.reached_ns, pages + 1
                if pages == MOST_PAGES or any(job.full for job in jobs.values()):
                    break
        complete = reached_ns >= window.end_ns
        if pages == MOST_PAGES and not complete:
            self._backlog.give_up()
        known_ns = self._backlog.known_ns(now_ns) if complete else reached_ns
        for job in jobs.values():
            job.known_to(known_ns)
            job.looked_s, job.complete = time.monotonic(), complete

    def _accept_pushed(self, entries: Sequence[Entry]) -> None:
        self._accept(entries, pushed=True)

    def _accept(self, entries: Sequence[Entry], *, pushed: bool = False) -> None:
        now_s, by_job = time.monotonic(), defaultdict[str, list[Entry]](list)
        for entry in entries:
            by_job[entry.job_id].append(entry)
        for job_id, arrived in by_job.items():
            # What is pushed to a job that is full is asked for once it no longer is.
            if (job := self._jobs.get(job_id)) is not None and not (pushed and job.full):
                before = job.lost
                job.accept(arrived, now_s, pushed=pushed)
                self.lost_lines += job.lost - before
        if entries:
            self._note_newest(max(entry.ns for entry in entries))

    async def _look_for_canary(self) -> None:
        """Before silence of all jobs is taken for the store's, ask it for any line at all."""
        now_s, now_ns = time.monotonic(), time.time_ns()
        is_new = self._newest_ns is not None and now_ns - self._newest_ns < CANARY_S * 1e9
        if is_new or now_s - self._canary_s < CANARY_S:
            return
        window = Window(now_ns - int(self._settings.stale_after_s * 1e9), now_ns + int(FUTURE_S * 1e9))
        self.questions += 1
        newest_ns = await self._store.newest_ns(window)
        self._canary_s = now_s
        if newest_ns is not None:
            self._note_newest(newest_ns)

    def _note_newest(self, ns: int) -> None:
        """A node's clock may be ahead."""
        now_ns = time.time_ns()
        newest_ns = min(ns, now_ns)
        if self._newest_ns is None or newest_ns > self._newest_ns:
            self._newest_ns = newest_ns
            self._backlog.hear(newest_ns, now_ns)

    def _is_stale(self) -> bool:
        return self._newest_ns is None or time.time_ns() - self._newest_ns > self._settings.stale_after_s * 1e9

    def _since(self) -> str:
        if self._newest_ns is None:
            return f" for {self._settings.stale_after_s:g} s"
        return f" since {moment(self._newest_ns):%H:%M:%S} UTC"

    def _note_skipped(self, entries: Sequence[Entry]) -> None:
        """There were more entries of the last one's moment than the store gives at once: how many is not known."""
        for job_id in {entry.job_id for entry in entries if entry.ns == entries[-1].ns}:
            if (job := self._jobs.get(job_id)) is not None:
                job.lost += 1
                self.lost_lines += 1

    def _ask_again(self, count: int) -> None:
        """What the store leaves out of what it pushes is still there."""
        log.info("the log store left lines out of what it pushed", store=self._settings.called, lines=count)
        for job in self._jobs.values():
            job.complete = False
        self._wake.set()

    def _note_answer(self) -> None:
        if self._trouble:
            log.info("the log store answers again", store=self._settings.called)
            self._trouble = ""

    def _note_trouble(self, error: StoreError) -> None:
        if not self._trouble:
            self._trouble_since = datetime.now(UTC)
        self._trouble = str(error)
        said, said_s = self._warned
        if self._trouble != said or time.monotonic() - said_s > WARN_AGAIN_S:
            log.warning("the log store can't be read", store=self._settings.called, error=self._trouble)
            self._warned = (self._trouble, time.monotonic())


_ASK = "do its collectors run, are their clocks right, and do `labels`, `selector` and `canary` fit?"
