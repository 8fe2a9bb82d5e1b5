"""One look of the watchdog at one cluster: find our holds that have lasted too long, release them, say so.

It needs the scheduler and nothing else. Each step may be repeated by this or another process, and a worker's act may be
alive and carry the same order out: a release of ours is what the act would have done next, and it goes on from there
(see `steps` and `resubmission`). Exclusions are left as they are, and nothing is ever cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog

from activities.scheduler.marker import Account, Marker, PassedOver, Word, read_marker, write_marker
from activities.scheduler.overdue import Leave, OurHold, Release, Sightings, Stay, decide, our_hold
from activities.scheduler.protocol import (
    JobRecord,
    JobUnknown,
    Refused,
    Scheduler,
    SchedulerError,
)
from activities.scheduler.rounds import Outcome, Round, Seen
from activities.scheduler.unreleased import Readings, Unreleased, find_unreleased
from activities.scheduler.watchdog_ledger import WatchdogLedger
from recovery.audit import AuditEvent, AuditKind
from recovery.model import JobId, Mode

AT_ONCE = 8
"""Jobs that are released at the same time: one whose commands hang does not keep the others."""
ANEW_A_ROUND = 100
"""Jobs that were submitted anew and are released in one round, the oldest first, and as many whose AdminComment is
set: anybody may submit such ones, and they must not keep the others."""
SETTLE_S = 0.15
"""Slurm answers most commands before their effect can be read."""
LOOKS_AFTER_RELEASE = 10
STALE_AFTER_S = 2.0
FRESH_TRIES = 3

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)


class Watchdog:
    """Watches one cluster. `look` once per interval."""

    def __init__(
        self,
        scheduler: Scheduler,
        record: Callable[[AuditEvent], Awaitable[None]],
        *,
        cluster: str,
        mode: Mode = Mode.OBSERVE,
        deadline: timedelta,
        settle_s: float = SETTLE_S,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`record` puts an audit event where it is safe. It must neither raise nor wait for long."""
        self._scheduler = scheduler
        self._cluster = cluster
        self._mode = mode
        self._deadline = deadline
        self._settle_s = settle_s
        self._clock = clock
        self._monotonic = monotonic
        self._ledger = WatchdogLedger(record, cluster=cluster, mode=mode, deadline=deadline, clock=clock)
        self._sightings = Sightings()
        self._readings = Readings()
        self._anew = 0
        """Of this round."""
        self._silent = False
        self._unsettled: dict[str, OurHold] = {}
        """Holds that we may have released, not yet seen released and unmarked."""

    async def look(self) -> Round:
        """Read all jobs, and release what has waited too long. Raises nothing of the scheduler's."""
        try:
            reading = await self._scheduler.jobs()
        except SchedulerError as error:
            self._note_silence(error)
            return Round(cluster=self._cluster, at=self._clock(), mode=self._mode, silence=str(error)[:500])
        self._note_answer()
        now, monotonic_s = self._clock(), self._monotonic()
        self._readings.look(reading.jobs, now=now, monotonic_s=monotonic_s)
        anew = find_unreleased(reading.jobs, self._cluster, self._readings)
        found, self._anew = _marked_holds(reading.jobs) | anew.holds, 0
        holds = {job_id: hold for job_id, hold in found.items() if isinstance(hold, OurHold)}
        held_for = self._sightings.look(holds.values(), now=now, monotonic_s=monotonic_s)
        seen = await self._handle_all(found, {job_id: held_for[hold.key] for job_id, hold in holds.items()})
        await self._settle_what_is_released({hold.key for hold in holds.values()})
        await self._put_words(anew)
        self._ledger.forget_all_but({hold.key for hold in holds.values()} | self._unsettled.keys())
        return Round(cluster=self._cluster, at=self._clock(), mode=self._mode, seen=seen)

    async def _handle_all(self, found: dict[JobId, OurHold | Leave], ages: dict[JobId, timedelta]) -> tuple[Seen, ...]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def handle(job_id: JobId, hold: OurHold | Leave) -> Seen:
            async with slots:
                try:
                    return await self._handle(job_id, hold, ages.get(job_id))
                except Exception:  # the last line of defence: our own fault at one job keeps no other one held
                    log.exception("failed at a job", cluster=self._cluster, job=job_id)
                    return self._seen(job_id, Outcome.FAILED, "an error of relight's own, see the log")

        return tuple(await asyncio.gather(*(handle(job_id, hold) for job_id, hold in found.items())))

    async def _handle(self, job_id: JobId, hold: OurHold | Leave, held_for: timedelta | None) -> Seen:
        decision = decide(hold, held_for or timedelta(), self._deadline)
        if isinstance(decision, Leave):
            return self._seen(job_id, Outcome.LEFT, decision.reason, held_for=held_for)
        if isinstance(decision, Stay):
            await self._tell_that_it_stays(decision.hold)
            return self._seen(job_id, Outcome.LEFT, f"stays held: {decision.hold.stays}", held_for=held_for)
        if decision.hold.anew:
            self._anew += 1
            if self._anew > ANEW_A_ROUND:
                return self._of(decision, Outcome.LEFT, "too many were submitted anew: the next round releases it")
        if self._mode is Mode.OBSERVE:
            await self._ledger.tell(AuditKind.ADVISED, decision.hold, f"would release the job: {_how_long(decision)}")
            return self._of(decision, Outcome.WOULD_RELEASE, "the watchdog is in observe mode")
        await self._ledger.tell(AuditKind.ORDERED, decision.hold, f"releasing the job: {_how_long(decision)}")
        try:
            return await self._release(decision)
        except SchedulerError as error:
            log.warning("release failed", cluster=self._cluster, job=job_id, because=str(error)[:500])
            return self._of(decision, Outcome.FAILED, str(error)[:500])

    async def _release(self, decision: Release) -> Seen:
        """Release the job if a fresh read still says so. ``scontrol release`` lifts anybody's hold: a person's must not
        have come in between."""
        job_id = decision.hold.job.job_id
        again = decide(await self._look_again(decision.hold), decision.held_for, self._deadline)
        if not isinstance(again, Release) or again.hold.key != decision.hold.key:
            return self._of(decision, Outcome.LEFT, _why_left(again))
        self._unsettled[decision.hold.key] = decision.hold
        await self._scheduler.release(job_id)
        await self._ledger.tell(AuditKind.ACTED, decision.hold, f"released the job: {_how_long(decision)}")
        for _ in range(LOOKS_AFTER_RELEASE):
            await asyncio.sleep(self._settle_s)
            if await self._settled(decision.hold):
                return self._of(decision, Outcome.RELEASED, _how_long(decision))
        return self._of(decision, Outcome.FAILED, "released, and still held by the reads after it")

    async def _look_again(self, hold: OurHold) -> OurHold | Leave:
        """Read freshly what the hold depends on: of a job that was submitted anew, all jobs."""
        job_id = hold.job.job_id
        if not hold.anew:
            return our_hold(await self._fresh(lambda: self._scheduler.job(job_id)))
        reading = await self._fresh(self._scheduler.jobs)
        now = find_unreleased(reading.jobs, self._cluster, self._readings)
        return now.holds.get(job_id, Leave(reason="not held by relight any more"))

    async def _fresh(self, read: Callable[[], Awaitable[Answer]]) -> Answer:
        """Read, again if we were stopped meanwhile; a scheduler that is always slow is taken as it is."""
        for _ in range(FRESH_TRIES - 1):
            asked_at_s = self._monotonic()
            answer = await read()
            if self._monotonic() - asked_at_s < STALE_AFTER_S:
                return answer
        return await read()

    async def _settle_what_is_released(self, still_held: set[str]) -> None:
        """Finish what a lost answer cut off in an earlier round."""
        for hold in [hold for key, hold in self._unsettled.items() if key not in still_held]:
            try:
                await self._settled(hold)
            except SchedulerError as error:
                log.warning("not yet seen released", cluster=self._cluster, job=hold.job.job_id, because=str(error))

    async def _settled(self, hold: OurHold) -> bool:
        """Whether a fresh read shows the job without our hold; then that goes on record and the mark is replaced."""
        try:
            record = await self._scheduler.job(hold.job.job_id)
        except JobUnknown as error:
            await self._ledger.tell_outcome(hold, None, str(error))
        else:
            if hold.lasts(record):
                return False
            detail = f"the job is {record.state.value}, hold: {record.hold.value}"
            await self._ledger.tell_outcome(hold, record, detail)
            account = Account(did=hold.advice_key, why=f"released by the watchdog; {hold.why}"[:200])
            await self._set(record, hold, account)
        self._unsettled.pop(hold.key, None)
        return True

    async def _put_words(self, anew: Unreleased) -> None:
        """Say in AdminComment what is known of new jobs, before what it is known by is forgotten."""
        for hold in (*anew.unmarked, *anew.unaccounted)[:ANEW_A_ROUND]:
            job_id = hold.job.job_id
            if hold.for_good:
                await self._tell_that_it_stays(hold)
            if self._mode is Mode.OBSERVE:
                continue
            try:
                await self._put_word(hold)
            except SchedulerError as error:
                log.warning("AdminComment is not set", cluster=self._cluster, job=job_id, because=str(error)[:500])

    async def _put_word(self, hold: OurHold) -> None:
        """Mark the job, pass it over or account for it. An act may have been at it meanwhile: a mark that came too late
        is replaced at once."""
        record = await self._scheduler.job(hold.job.job_id)
        if hold.for_good:
            await self._set(record, hold, PassedOver(not_for=hold.advice_key, why=hold.stays[:200]))
        elif hold.lasts(record):
            await self._set(record, hold, Marker(holds=hold.advice_key, since=self._clock(), why=hold.why))
            record = await self._scheduler.job(record.job_id)
        if not hold.lasts(record):
            await self._set(record, hold, Account(did=hold.advice_key, why=hold.why))

    async def _set(self, record: JobRecord, hold: OurHold, word: Word) -> None:
        """Say `word` of the hold in AdminComment, unless an account stands there. Nothing of an ended job can be
        changed: what is there stays and does no harm, since no later hold is taken for ours by it."""
        if record.state.ended or not hold.lacks_account(record):
            return
        try:
            await self._scheduler.constrain(record.job_id, admin_comment=write_marker(record.admin_comment, word))
        except (Refused, JobUnknown) as error:
            log.info("AdminComment is as it was", cluster=self._cluster, job=record.job_id, because=str(error))

    async def _tell_that_it_stays(self, hold: OurHold) -> None:
        what = f"the job stays held: {hold.stays}. Release or cancel it by hand"
        await self._ledger.tell(AuditKind.WARNED, hold, what)

    def _note_silence(self, error: SchedulerError) -> None:
        if not self._silent:
            log.warning("blind: nothing is done until it answers", cluster=self._cluster, because=str(error)[:500])
        self._silent = True

    def _note_answer(self) -> None:
        if self._silent:
            log.info("the scheduler speaks again", cluster=self._cluster)
        self._silent = False

    def _of(self, release: Release, outcome: Outcome, reason: str) -> Seen:
        hold = release.hold
        return self._seen(hold.job.job_id, outcome, reason, held_for=release.held_for, advice=hold.advice_key)

    def _seen(
        self, job_id: str, outcome: Outcome, reason: str, *, held_for: timedelta | None = None, advice: str = ""
    ) -> Seen:
        return Seen(
            cluster=self._cluster,
            job_id=job_id,
            outcome=outcome,
            reason=reason,
            advice=advice,
            held_for_s=held_for.total_seconds() if held_for is not None else None,
        )


def _marked_holds(jobs: tuple[JobRecord, ...]) -> dict[JobId, OurHold | Leave]:
    return {job.job_id: our_hold(job) for job in jobs if isinstance(read_marker(job.admin_comment), Marker)}


def _why_left(decision: Release | Stay | Leave) -> str:
    if isinstance(decision, Leave):
        return decision.reason
    return decision.hold.stays or "held anew"


def _how_long(release: Release) -> str:
    return f"held by relight for {release.held_for.total_seconds():.0f} s"
