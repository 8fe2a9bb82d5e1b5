"""One look of the watchdog at one cluster: find our holds that have lasted too long, release them, say so.

It needs the scheduler and nothing else. Each step may be repeated by this or another process, and a worker's act may be
alive and carry the same order out: a release of ours is what the act would have done next, and it goes on from there
(see `steps`). Exclusions are left as they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import structlog

from activities.scheduler.marker import Account, Marker, read_marker, write_marker
from activities.scheduler.overdue import Leave, OurHold, Release, Sightings, decide, our_hold
from activities.scheduler.protocol import (
    Hold,
    JobRecord,
    JobUnknown,
    Refused,
    Scheduler,
    SchedulerError,
)
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Disposition, Mode, Reconciliation, Value

WHO = "watchdog"
AT_ONCE = 8
"""Jobs that are released at the same time: one whose commands hang does not keep the others."""
SETTLE_S = 0.15
"""Slurm answers most commands before their effect can be read."""
LOOKS_AFTER_RELEASE = 10
STALE_AFTER_S = 2.0
FRESH_TRIES = 3

log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What became of a job that carries our mark."""

    LEFT = "left"
    WOULD_RELEASE = "would_release"
    RELEASED = "released"
    FAILED = "failed"
    """Still held, or not known: the next round tries again."""


class Seen(Value):
    """A job with our mark, and what was done about it."""

    cluster: str
    job_id: str
    outcome: Outcome
    reason: str
    advice: str = ""
    held_for_s: float | None = None
    """None where the job is not held by us."""


class Round(Value):
    """One look at one cluster."""

    cluster: str
    at: datetime
    mode: Mode
    silence: str = ""
    """What went wrong, when the scheduler gave no answer; nothing was done then."""
    seen: tuple[Seen, ...] = ()


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
        self._record = record
        self._cluster = cluster
        self._mode = mode
        self._deadline = deadline
        self._settle_s = settle_s
        self._clock = clock
        self._monotonic = monotonic
        self._sightings = Sightings()
        self._silent = False
        self._told: set[tuple[str, AuditKind]] = set()
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
        marked = [job for job in reading.jobs if isinstance(read_marker(job.admin_comment), Marker)]
        holds = {job.job_id: hold for job in marked if isinstance(hold := our_hold(job), OurHold)}
        held_for = self._sightings.look(holds.values(), now=self._clock(), monotonic_s=self._monotonic())
        ages = {job_id: held_for[hold.key] for job_id, hold in holds.items()}
        seen = await self._handle_all(marked, ages)
        await self._settle_what_is_released({hold.key for hold in holds.values()})
        self._forget_all_but({hold.key for hold in holds.values()} | self._unsettled.keys())
        return Round(cluster=self._cluster, at=self._clock(), mode=self._mode, seen=seen)

    async def _handle_all(self, marked: list[JobRecord], ages: dict[str, timedelta]) -> tuple[Seen, ...]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def handle(record: JobRecord) -> Seen:
            async with slots:
                try:
                    return await self._handle(record, ages.get(record.job_id))
                except Exception:  # the last line of defence: our own fault at one job keeps no other one held
                    log.exception("failed at a job", cluster=self._cluster, job=record.job_id)
                    return self._seen(record.job_id, Outcome.FAILED, "an error of relight's own, see the log")

        return tuple(await asyncio.gather(*map(handle, marked)))

    async def _handle(self, record: JobRecord, held_for: timedelta | None) -> Seen:
        decision = decide(record, held_for or timedelta(), self._deadline)
        if isinstance(decision, Leave):
            return self._seen(record.job_id, Outcome.LEFT, decision.reason, held_for=held_for)
        if self._mode is Mode.OBSERVE:
            await self._tell(AuditKind.ADVISED, decision.hold, f"would release the job: {_how_long(decision)}")
            return self._of(decision, Outcome.WOULD_RELEASE, "the watchdog is in observe mode")
        await self._tell(AuditKind.ORDERED, decision.hold, f"releasing the job: {_how_long(decision)}")
        try:
            return await self._release(decision)
        except SchedulerError as error:
            log.warning("release failed", cluster=self._cluster, job=record.job_id, because=str(error)[:500])
            return self._of(decision, Outcome.FAILED, str(error)[:500])

    async def _release(self, decision: Release) -> Seen:
        """Release the job if a fresh read still says so. ``scontrol release`` lifts anybody's hold: a person's must not
        have come in between."""
        job_id = decision.hold.job.job_id
        again = decide(await self._fresh_record(job_id), decision.held_for, self._deadline)
        if isinstance(again, Leave) or again.hold.key != decision.hold.key:
            return self._of(decision, Outcome.LEFT, again.reason if isinstance(again, Leave) else "held anew")
        self._unsettled[decision.hold.key] = decision.hold
        await self._scheduler.release(job_id)
        await self._tell(AuditKind.ACTED, decision.hold, f"released the job: {_how_long(decision)}")
        for _ in range(LOOKS_AFTER_RELEASE):
            await asyncio.sleep(self._settle_s)
            if await self._settled(decision.hold):
                return self._of(decision, Outcome.RELEASED, _how_long(decision))
        return self._of(decision, Outcome.FAILED, "released, and still held by the reads after it")

    async def _fresh_record(self, job_id: str) -> JobRecord:
        """Read the job, again if we were stopped meanwhile; a scheduler that is always slow is taken as it is."""
        for _ in range(FRESH_TRIES - 1):
            asked_at_s = self._monotonic()
            record = await self._scheduler.job(job_id)
            if self._monotonic() - asked_at_s < STALE_AFTER_S:
                return record
        return await self._scheduler.job(job_id)

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
            await self._tell_outcome(hold, None, str(error))
        else:
            if record.hold is Hold.REQUEUED and record.restart_count == hold.restart_count:
                return False
            await self._tell_outcome(hold, record, f"the job is {record.state.value}, hold: {record.hold.value}")
            await self._unmark(record, hold)
        self._unsettled.pop(hold.key, None)
        return True

    async def _unmark(self, record: JobRecord, hold: OurHold) -> None:
        """Replace our mark by an account, as the act would. Nothing of an ended job can be changed: its mark stays and
        does no harm, since no later hold is taken for ours by it."""
        marker = read_marker(record.admin_comment)
        if record.state.ended or not isinstance(marker, Marker) or marker.holds != hold.advice_key:
            return
        account = Account(did=hold.advice_key, why=f"released by the watchdog; {hold.why}"[:200])
        try:
            await self._scheduler.constrain(record.job_id, admin_comment=write_marker(record.admin_comment, account))
        except (Refused, JobUnknown) as error:
            log.info("the mark stays", cluster=self._cluster, job=record.job_id, because=str(error))

    # --- the record -----------------------------------------------------------------------------------------------

    async def _tell_outcome(self, hold: OurHold, record: JobRecord | None, detail: str) -> None:
        gone = record is None
        reconciliation = Reconciliation(
            disposition=Disposition.ABANDONED if gone else Disposition.CONVERGED,
            reason="job_gone" if gone else "desired_state_observed",
            observed_at=self._clock(),
            restart_count=record.restart_count if record else hold.restart_count,
            excluded=record.excluded_nodes if record else (),
            submitted_at=record.submitted_at if record else None,
            eligible_at=record.eligible_at if record else None,
            detail=detail[:500],
        )
        what = "the job is gone" if gone else "the job is no longer held by relight"
        await self._tell(AuditKind.RECONCILED, hold, what, reconciliation)

    async def _tell(
        self, kind: AuditKind, hold: OurHold, summary: str, reconciliation: Reconciliation | None = None
    ) -> None:
        """Say it once for each hold, however many rounds it takes."""
        if (hold.key, kind) in self._told:
            return
        self._told.add((hold.key, kind))
        log.warning(summary, cluster=self._cluster, job=hold.job.job_id, advice=hold.advice_key, why=hold.why)
        await self._record(
            AuditEvent(
                key=f"{WHO}/{hold.key}/{kind.value}",
                at=self._clock(),
                job=hold.job,
                attempt=hold.attempt,
                kind=kind,
                who=WHO,
                summary=summary,
                mode=self._mode,
                reconciliation=reconciliation,
                details={"advice": hold.advice_key, "deadline_s": self._deadline.total_seconds()},
            )
        )

    def _forget_all_but(self, keys: set[str]) -> None:
        self._told = {(key, kind) for key, kind in self._told if key in keys}

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


def _how_long(release: Release) -> str:
    return f"held by relight for {release.held_for.total_seconds():.0f} s"
