"""What the oracle is given: the scheduler's own records of a run, the audit trail, and when what was out of order. No
word of a worker's is among it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.requeue import STALE_AFTER_S
from recovery.audit import AuditEvent
from recovery.model import JobId, NodeName, Value
from tests.chaos.kinds import JobKind

IN_FLIGHT = timedelta(seconds=STALE_AFTER_S)
"""A call of ours may be decided from a read that is this old."""


class Verb(StrEnum):
    """A call that changes a job."""

    REQUEUE = "requeue"
    CONSTRAIN = "constrain"
    RELEASE = "release"
    START_NOW = "start_now"
    ALLOW_REQUEUE = "allow_requeue"
    SIGNAL = "signal"
    CANCEL = "cancel"
    HOLD = "hold"
    NODE_FAILURE = "node failure"


class Call(Value):
    """One call about one job, as the scheduler wrote it down."""

    job_id: JobId
    verb: Verb
    ours: bool
    """Made by relight; else by a person or the scheduler itself."""
    received_at: datetime
    at: datetime
    """When it took effect or was refused."""
    accepted: bool
    restart_count: int
    """Right after it, as all that follows."""
    state: JobState
    hold: Hold
    exclude: tuple[NodeName, ...] | None = None
    """The exclusion list that the call set; None: it set none."""
    forgotten: bool = False
    """The scheduler crashed before it saved what the call did: it never happened."""


class Held(Value):
    """One hold by a requeue, as reading after reading showed it."""

    job_id: JobId
    restart_count: int
    since: datetime
    until: datetime
    """The last reading that showed it."""


class Party(StrEnum):
    """Who can be out of order."""

    WORKER = "worker"
    TEMPORAL = "Temporal"
    POSTGRES = "PostgreSQL"
    SCHEDULER = "scheduler"
    WATCHDOG = "watchdog"


class Outage(Value):
    """A time in which one party was dead, stopped, or without a disk. `since` counts from the blow, `until` to the
    moment at which it served again."""

    party: Party
    since: datetime
    until: datetime
    fatal: bool = True
    """It was killed; else it stood still."""


class JobHistory(Value):
    """One job: what it was submitted as and what the scheduler shows at the end."""

    kind: JobKind
    user_excluded: tuple[NodeName, ...]
    record: JobRecord
    calls: tuple[Call, ...]
    holds: tuple[Held, ...] = ()
    events: tuple[AuditEvent, ...]
    """Its audit trail as the workflow told it, in order."""
    of_watchdog: tuple[AuditEvent, ...] = ()
    """Its audit trail as the watchdog told it."""
    guarded: bool = True
    """There is a workflow of it. A job that is over before anybody looked needs none."""
    settled: bool = True
    """It came to where it had to come, before the harness's patience ended."""

    @property
    def job_id(self) -> JobId:
        return self.record.job_id

    @property
    def our_calls(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.ours and not call.forgotten)


class Observed(Value):
    """One run."""

    jobs: tuple[JobHistory, ...]
    outages: tuple[Outage, ...] = ()
    in_flight: timedelta = IN_FLIGHT
    """How long after the read that led to it a call of ours may arrive: a person's act in between can't be seen."""
    may_be_held_for: timedelta = timedelta(days=1)
    """The watchdog's deadline and one interval."""
    replay_failures: dict[str, str] = Field(default_factory=dict)
    """What went wrong when a workflow's history was replayed, by workflow id."""

    def out_of_order(self, parties: Iterable[Party], since: datetime, until: datetime) -> timedelta:
        """Return for how long of a time one of `parties` was away; overlaps count twice."""
        wanted = set(parties)
        overlaps = [
            min(until, outage.until) - max(since, outage.since) for outage in self.outages if outage.party in wanted
        ]
        return sum((overlap for overlap in overlaps if overlap > timedelta()), timedelta())


class Breach(StrEnum):
    """The ways in which a promise can be broken."""

    REQUEUED_TWICE = "requeued twice"
    LEFT_HELD = "left held"
    NO_INTENT = "act without recorded intent"
    LOST_EVENT = "lost audit event"
    EXCLUSIONS_LOST = "user's exclusions lost"
    TOUCHED = "touched what is not ours"
    GROUNDLESS = "restart without a failure"
    ENDLESS = "restarted without end"
    UNTRUE = "recorded, but not so"
    REPLAY = "history does not replay"
    UNFINISHED = "not finished in time"


class Violation(Value):
    """One broken promise."""

    breach: Breach
    subject: str
    """The job, or the workflow."""
    detail: str
