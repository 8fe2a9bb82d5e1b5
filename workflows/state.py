"""What a job's workflow knows: one model that continue-as-new carries on and that queries return."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from activities.adopt import CLOSED_PHASE, RecoveryStart
from activities.assessment import Terms
from activities.chains import Stranded
from activities.lineage import Handed
from activities.logs.protocol import LogCursor
from activities.second_opinion import OpinionOrder
from recovery.audit import AuditEvent
from recovery.detection.state import MonitorState
from recovery.governor import Limit
from recovery.model import (
    Advice,
    Exclusion,
    JobKey,
    Milestone,
    Mode,
    NodeName,
    Progress,
    Reconciliation,
    Symptom,
    Value,
    Verdict,
    strictest,
)
from recovery.opinion import Opinion
from recovery.optin import OptIn
from recovery.policy import PastAttempt
from workflows.overrides import Command

KEPT_ENTRIES = 100
KEPT_ATTEMPTS = 50
KEPT_REQUESTS = 50


class Phase(StrEnum):
    """Where the workflow stands."""

    WATCHING = "watching"
    ATTRIBUTING = "attributing"
    AWAITING_APPROVAL = "awaiting_approval"
    KEPT_BACK = "kept_back"
    ACTING = "acting"
    PAUSED = "paused"
    CLOSED = CLOSED_PHASE


class Entry(Value):
    """One line of the job's timeline."""

    at: datetime
    kind: str
    """The audit kind of what is told, or ``note``."""
    text: str
    who: str = ""
    """The person whose word it is; empty for relight's own."""


class KeptBack(Value):
    """Why and since when the governor keeps the job's advice back."""

    limit: Limit
    says: str
    since: datetime
    ask_at: datetime
    """When it is asked again."""


class RecoveryState(BaseModel):
    """All that a job's workflow remembers. Only the workflow changes it."""

    phase: Phase = Phase.WATCHING
    partition: str = ""
    attempt: int = 0
    attempt_submitted_at: datetime
    nodes: tuple[NodeName, ...] = ()
    user_excluded: tuple[NodeName, ...] = ()
    mode_override: Mode | None = None
    terms: Terms = Terms()
    paused: bool = False
    progress: Progress = Progress()
    monitor: MonitorState = MonitorState()
    logs: tuple[LogCursor, ...] = ()
    """Where the next watch reads on."""
    began: tuple[LogCursor, ...] = ()
    """Where this attempt's output begins: what attribution reads from; empty: not known yet."""
    ended: bool = False
    """The current attempt has ended and its end was answered."""
    recovering: bool = False
    """The attempt was started by a recovery whose milestones are still open."""
    blind_since: datetime | None = None
    blind_because: str = ""
    lost_lines: int = 0
    """How many of this attempt's lines are known to be lost on their way from a log store."""
    symptom: Symptom | None = None
    verdict: Verdict | None = None
    opinion: Opinion | None = None
    """What a service of the site says of the current attempt."""
    opinion_final: bool = False
    """It was said, with time to think, of an attempt that had failed beyond doubt: each decision on that counts it."""
    asking: OpinionOrder | None = None
    """What the service is being asked."""
    fallbacks: int = 0
    """Decisions in a row that were made without the policy: they need a bound of their own."""
    generation: int = 0
    advice: Advice | None = None
    """The newest advice; what became of it is `reconciliation`."""
    due: bool = False
    """The advice may be carried out. One on a fatal line waits until the attempt ends or stands still, and one that was
    rejected or expired never may."""
    kept_back: KeptBack | None = None
    """Set while the governor keeps the advice back."""
    usable_nodes: int | None = None
    """Of the job's partition at the last attribution; None: not known."""
    failure_told: int | None = None
    """The attempt whose failure the cluster's workflow was told of last."""
    reconciliation: Reconciliation | None = None
    exclusions: tuple[Exclusion, ...] = ()
    readmitted: tuple[NodeName, ...] = ()
    """Our earlier exclusions that a person took back: still in the scheduler until the next act withdraws them."""
    past: tuple[PastAttempt, ...] = ()
    told_cannot_start: int | None = None
    """The last attempt of which it was told that our exclusions keep it from starting."""
    answered_at: datetime | None = None
    """When the end of an attempt was answered last."""
    resubmitted_as: str = ""
    """The job that was submitted in place of this one."""
    stranded: Stranded = Stranded()
    """Jobs that wait for this one and can't start any more, as of its last failure."""
    milestones: tuple[Milestone, ...] = ()
    timeline: tuple[Entry, ...] = ()
    commands: tuple[Command, ...] = ()
    """Accepted from people and not yet carried out."""
    request_ids: tuple[str, ...] = ()
    audit_count: int = 0
    unaudited: tuple[AuditEvent, ...] = ()
    """Events whose delivery to the audit trail was not confirmed yet."""
    closed: str = ""
    """Why the workflow ended; empty while it goes on."""

    def mode(self, optin: OptIn) -> Mode:
        """The mode in force: the operator's is the ceiling, below it a person's word stands before the job's own."""
        return strictest(self.terms.mode_in(self.partition), self.mode_override or optin.mode)

    def note(self, at: datetime, text: str, *, kind: str = "note", who: str = "") -> None:
        """Add a line to the timeline, which keeps its newest `KEPT_ENTRIES`."""
        self.timeline = (*self.timeline, Entry(at=at, kind=kind, text=text[:500], who=who))[-KEPT_ENTRIES:]

    def remember_request(self, request_id: str) -> None:
        """Remember a person's request so that a repeated delivery of it changes nothing."""
        if request_id:
            self.request_ids = (*self.request_ids, request_id)[-KEPT_REQUESTS:]


def first_state(start: RecoveryStart) -> RecoveryState:
    """Return the state of a job that just came under guard."""
    record = start.record
    return RecoveryState(
        partition=record.partition,
        attempt=record.restart_count,
        attempt_submitted_at=record.submitted_at,
        nodes=record.nodes,
        user_excluded=tuple(node for node in record.excluded_nodes if node not in start.nodes_excluded_before),
        terms=start.terms,
        past=start.inherited.handed.past,
        exclusions=start.inherited.handed.exclusions,
        recovering=start.inherited.resubmissions > 0,
    )


class RecoveryReport(Value):
    """A job workflow's result."""

    job: JobKey
    closed: str
    attempt: int = Field(ge=0)
    attempt_submitted_at: datetime
    milestones: tuple[Milestone, ...] = ()
    resubmitted_as: str = ""
    handed_on: Handed | None = None
    """For the job that was submitted in place of this one."""
