"""An order to submit a job anew, carried out by workers that die, with the watchdog beside them: calls get lost, come
late, or twice; people have their word; the scheduler forgets what ended. Everything is drawn from a seed.

The world knows what no part of relight does: which submission came first, and who cancelled the old job when.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from activities.scheduler.lineage import CLOCK_SKEW, PROMPT, read_lineage
from activities.scheduler.marker import Replaced, carries_mark, read_marker
from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.resubmission import MARK_LASTS
from activities.scheduler.unreleased import LONGEST_GAP
from activities.scheduler.watchdog import Watchdog
from recovery.model import Mode, Reconciliation
from tests.model.eventful import OF_THE_JOBS, STEPS, Eventful
from tests.resubmission.world import OLD
from tests.watchdog.parts import Recorded

DEADLINE_S, INTERVAL_S = 60, 30
SLACK_S = 15
"""What the calls of a look take, and clocks that show whole seconds."""
SLICE_S = 5
AWAY_S = (0, 0, 0, 100)


class Resubmitted(Eventful):
    """A run from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.settled: Reconciliation | None = None
        self.oldest = ""
        """The job that was the first to come for the order, whatever became of it."""
        self.reads_since: datetime | None = None
        """Since when the watchdog has read without a gap."""
        self.broken = ""
        """The first promise that was."""
        self.due_since: datetime | None = None
        """Since when, in quiet times, a job waits that the watchdog has to release."""
        self.scheduler.after_each = self._take_note
        self.watching = asyncio.ensure_future(self._watch())

    # --- the watchdog ---------------------------------------------------------------------------------------------

    async def _watch(self, away_s: int = 0) -> None:
        """Look once per interval, and first be away for some time."""
        watchdog = Watchdog(
            self.scheduler,  # type: ignore[arg-type]
            Recorded().record,
            cluster="alpha",
            mode=Mode.ACT,
            deadline=timedelta(seconds=DEADLINE_S),
            settle_s=0,
            clock=lambda: self.scheduler.now,
            monotonic=lambda: self.scheduler.now.timestamp(),
        )
        self.reads_since = self.due_since = None
        next_at = looked_at = self.scheduler.now + timedelta(seconds=away_s)
        while True:
            if self.scheduler.now >= next_at:
                next_at = self.scheduler.now + timedelta(seconds=INTERVAL_S)
                self.looking = True
                await watchdog.look()
                self.looking = False
                if self.reads_since is None or self.scheduler.now - looked_at > LONGEST_GAP:
                    self.reads_since = self.scheduler.now
                looked_at = next_at - timedelta(seconds=INTERVAL_S)
            await asyncio.sleep(0)

    async def _watchdog_ends(self) -> None:
        self.watching.cancel()
        with suppress(asyncio.CancelledError):
            await self.watching
        self.looking = False

    async def _watchdog_dies(self, away_s: int) -> None:
        await self._watchdog_ends()
        self.watching = asyncio.ensure_future(self._watch(away_s))

    # --- a run ----------------------------------------------------------------------------------------------------

    async def _try(self, number: int) -> Reconciliation | None:
        self.trying = True
        outcome = await super()._try(number)
        self.trying = False
        return outcome

    async def run(self) -> None:
        try:
            await self._busy_times()
            await self._without_a_worker()
            if self.draw.random() < 0.5:
                await self._nobody_is_there()
            await self._quiet_times()
            await self._long_after()
            assert not self.broken, self.broken
        finally:
            await self._watchdog_ends()

    async def _busy_times(self) -> None:
        for number in range(1, STEPS):
            if self.settled is not None or self.worker_is_gone:
                break
            self.settled = await self._try(number)
            if self.draw.random() < 0.15:
                await self._watchdog_dies(self.draw.choice(AWAY_S))

    async def _without_a_worker(self) -> None:
        for _ in range(self.draw.choice((0, 0, 5, 10))):
            self._meanwhile("", None)
            await self._time_passes(self.draw.choice((1, 10, 30)))
            if self.draw.random() < 0.15:
                await self._watchdog_dies(self.draw.choice(AWAY_S))

    async def _nobody_is_there(self) -> None:
        await self._watchdog_ends()
        self._happens_to_the_new_job("the new job ends" if self.draw.random() < 0.5 else "nothing")
        for _ in range(self.draw.choice((3, 15, 25))):
            self._happens(self.draw.choice((*OF_THE_JOBS, *("nothing",) * 20)), None)
            self._processes_end()
            self.scheduler.pass_time(30)

    async def _quiet_times(self) -> None:
        """Nothing is lost any more, the old job comes to an end if it has not, and where a worker is left it ends the
        order; else the watchdog does."""
        self.quiet = self.scheduler.calm = True
        await self._watchdog_dies(0)
        for number in range(STEPS, STEPS + 5):
            if self.settled is None and not self.worker_is_gone:
                self.settled = await self._try(number)
        assert self.settled is not None or self.worker_is_gone, "the order never came to its end"
        if self.old_state is JobState.RUNNING:
            self.cluster.end_attempt(OLD, JobState.TIMEOUT, self.scheduler.now)
        await self._time_passes(2 * (DEADLINE_S + INTERVAL_S))

    async def _long_after(self) -> None:
        """All is over and forgotten, and a fresh watchdog finds what is left."""
        for job in self.submitted:
            if job.state is JobState.RUNNING:
                self.cluster.attempt_gone(job.job_id, 1, 0, self.scheduler.now)
        await self._time_passes(330)
        await self._watchdog_dies(0)
        await self._time_passes(DEADLINE_S + 3 * INTERVAL_S)

    async def _time_passes(self, seconds: int) -> None:
        """While nobody but the watchdog calls."""
        until = self.scheduler.now + timedelta(seconds=seconds)
        while self.scheduler.now < until:
            self.scheduler.pass_time(min(SLICE_S, seconds))
            for _ in range(2):
                await asyncio.sleep(0)
            while self.looking and not self.watching.done():
                await asyncio.sleep(0)

    # --- what must hold -------------------------------------------------------------------------------------------

    def _take_note(self) -> None:
        """Called in the midst of a call, whose caller may catch what is raised."""
        before = set(self.started)
        self._look()
        self.oldest = self.oldest or (self.submitted[0].job_id if self.submitted else "")
        self._expect(len(self.started) <= 1, f"two jobs ran for one order: {self.started}")
        for job_id in self.started - before:
            self._expect(not self.disturbed, f"the old job was {self.disturbed}, and another one ran")
            self._expect(job_id not in self.kept_by_a_person, "a job ran that a person had cancelled or held")
            self._expect(self.old_state is not JobState.RUNNING, "both ran at once")
        if not (self.quiet and self._has_to_run()):
            self.due_since = None
            return
        self.due_since = self.due_since or self.scheduler.now
        allowed = timedelta(seconds=DEADLINE_S + INTERVAL_S + SLACK_S)
        self._expect(self.scheduler.now - self.due_since <= allowed, "left held beyond the watchdog's deadline")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds and not self.broken:
            self.broken = otherwise

    def _has_to_run(self) -> bool:
        """Whether the oldest of the new jobs waits, and nobody could have a reason to let it wait."""
        new, old = self.job(self.oldest), self.job(OLD)
        lineage = read_lineage(new.comment) if new is not None else None
        if new is None or lineage is None or new.hold is not Hold.USER or new.state is not JobState.PENDING:
            return False
        known = self.reads_since is not None and self.reads_since + CLOCK_SKEW <= lineage.since
        prompt = new.submitted_at - lineage.since <= PROMPT
        if not prompt or not (lineage.first or known) or self.old_had_a_word or self.kept_by_a_person:
            return False
        if old is None:
            return lineage.old_is_over or carries_mark(new.admin_comment, lineage.order)
        return (
            old.state.ended and not old.flags and (old.state is not JobState.CANCELLED or self._cancelled_in_time(old))
        )

    def _cancelled_in_time(self, old: JobRecord) -> bool:
        """Whether the call that cancelled the old job was carried out soon, and no older mark came after it."""
        sent_at, word = self.scheduler.cancel_sent_at.get(OLD), read_marker(old.admin_comment)
        if sent_at is None or old.ended_at is None or old.ended_at - sent_at > MARK_LASTS:
            return False
        return not isinstance(word, Replaced) or sent_at - word.since <= MARK_LASTS


def play_resubmitted(seed: int) -> None:
    """One run drawn from `seed`."""

    async def run() -> None:
        await Resubmitted(seed).run()

    asyncio.run(run())
