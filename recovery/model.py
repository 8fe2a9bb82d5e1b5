"""The words of the project as frozen models. One word, one meaning: in code, CLI, API, UI and docs.

Everything here is a value: it is compared, stored in workflow histories and in the audit trail, and never mutated.
Fields that are added later need a default, because histories written before must still load.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

JOB_ID_PATTERN = r"^[0-9]{1,12}(_[0-9]{1,9})?$"
NODE_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,253}$"

MAX_EVIDENCE = 40
MAX_EVIDENCE_CHARS = 1_000


class Value(BaseModel):
    """Base of every model of the domain: frozen, compared by value."""

    model_config = ConfigDict(frozen=True)


JobId = Annotated[str, StringConstraints(pattern=JOB_ID_PATTERN)]
"""A Slurm job id as Slurm's commands take it: ``123``, or ``123_4`` for one array task."""

NodeName = Annotated[str, StringConstraints(pattern=NODE_NAME_PATTERN)]
"""One node, safe to put on a command line."""


class Mode(StrEnum):
    """How far relight may go. The strictest setting wins; see :func:`strictest`."""

    OBSERVE = "observe"
    ACT = "act"


def strictest(*modes: Mode) -> Mode:
    """Return OBSERVE if any of `modes` is OBSERVE, and also when there is none."""
    return Mode.ACT if modes and all(mode is Mode.ACT for mode in modes) else Mode.OBSERVE


class JobKey(Value):
    """A job's identity. Slurm reuses job ids and moves the submit time at each requeue (seen on 22.05): the triple with
    the *first* submit time we saw is what stays unique."""

    cluster: str
    job_id: JobId
    submitted_at: datetime

    @property
    def workflow_id(self) -> str:
        """The id of this job's workflow. Without the submit time, so that no two workflows ever guard one job id."""
        return f"recovery/{self.cluster}/{self.job_id}"

    def __str__(self) -> str:
        return f"{self.cluster}/{self.job_id}"


class SymptomKind(StrEnum):
    """What happened to an attempt."""

    CRASH = "crash"
    HANG = "hang"
    STRAGGLER = "straggler"
    NONE = "none"


class Category(StrEnum):
    """Whose kind of failure it is: the label set of the corpus, and what budgets are kept by."""

    HARDWARE_GPU = "hardware_gpu"
    HARDWARE_NETWORK = "hardware_network"
    HOST = "host"
    STORAGE = "storage"
    SOFTWARE_STACK = "software_stack"
    USER_CODE = "user_code"
    DATA = "data"
    NUMERICAL = "numerical"
    SCHEDULER = "scheduler"
    INFRA_TRANSIENT = "infra_transient"
    NONE = "none"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What to do next with a job. `NONE` means: leave it alone, nothing is wrong. `WAIT`: something is, but not to be
    answered by a restart now."""

    RESTART = "restart"
    RESTART_EXCLUDE = "restart_exclude"
    STOP = "stop"
    WAIT = "wait"
    NONE = "none"


class Confidence(StrEnum):
    """How sure a verdict is. `ESTABLISHED`: evidence names it. `LIKELY`: the best reading. `GUESS`: a default."""

    ESTABLISHED = "established"
    LIKELY = "likely"
    GUESS = "guess"


class Evidence(Value):
    """One quoted, redacted signal behind a claim."""

    source: str
    """Where it was read: a file path, a metric series, ``slurm``."""
    text: str = Field(max_length=MAX_EVIDENCE_CHARS)
    line: int | None = None
    """Line number in `source`, from 1, where the source has lines."""
    at: datetime | None = None
    """When the source says it happened; None where it carries no time."""
    host: str = ""
    """The node it speaks of, empty when unknown."""
    signature: str = ""
    """Id of the catalogue entry that matched, empty for facts that are no log lines."""


class Symptom(Value):
    """What happened to an attempt, with the evidence that shows it."""

    kind: SymptomKind
    detected_at: datetime
    """When we saw it, by our clock."""
    happened_at: datetime | None = None
    """When the source says that it happened."""
    summary: str
    evidence: tuple[Evidence, ...] = Field(default=(), max_length=MAX_EVIDENCE)


class Verdict(Value):
    """Why: the cause, the culprits and the victims. Apart from what to do about it."""

    symptom: SymptomKind
    category: Category
    cause: str
    """A short slug such as ``gpu_fallen_off_bus``, from the catalogue."""
    culprits: tuple[NodeName, ...] = ()
    victims: tuple[NodeName, ...] = ()
    confidence: Confidence = Confidence.GUESS
    suggested: Action = Action.RESTART
    """What this kind of failure calls for, before budgets and modes: policy decides."""
    summary: str = ""
    """One sentence for a person."""
    unlocated_because: str = ""
    """Why no culprit is named, where one would be expected."""
    ruled_out: tuple[str, ...] = ()
    blind_to: tuple[str, ...] = ()
    """What could not be looked at, and why."""
    evidence: tuple[Evidence, ...] = Field(default=(), max_length=MAX_EVIDENCE)
    fingerprint: str = ""
    """The same failure at the same place gives the same string, on any node: how repetition is recognised."""
    says: str = "built-in"
    """Who says so."""

    @property
    def names_culprits(self) -> bool:
        """Whether evidence names culprits, and the next attempt is to be kept off them."""
        sure = self.suggested is Action.RESTART_EXCLUDE and self.confidence is not Confidence.GUESS
        return sure and bool(self.culprits)


class Exclusion(Value):
    """A node kept away from a job: by whom, why, until when."""

    node: NodeName
    by: str
    """``policy`` or the person's name."""
    reason: str
    since: datetime
    until: datetime | None = None


class Advice(Value):
    """What next, for one attempt."""

    job: JobKey
    attempt: int = Field(ge=0)
    generation: int = Field(ge=1)
    """Counts up with every new advice for the job; a receipt for an older one is never taken for this one."""
    action: Action
    exclude: tuple[NodeName, ...] = ()
    reason: str
    rule: str
    """The policy rule that decided."""
    advised_at: datetime
    expires_at: datetime
    by: str = "policy"
    keep_delay: bool = False
    """Leave Slurm's requeue delay in place: the cause needs time to pass."""
    kill_first: bool = False
    """The attempt still runs and must be ended as part of carrying this out (a hang, a fault without an exit)."""

    @property
    def key(self) -> str:
        """Identifies this advice in every store: job, attempt and generation."""
        return f"{self.job.workflow_id}@{int(self.job.submitted_at.timestamp())}#{self.attempt}.{self.generation}"

    @property
    def restarts(self) -> bool:
        """Whether carrying this out requeues the job."""
        return self.action in (Action.RESTART, Action.RESTART_EXCLUDE)

    @property
    def in_words(self) -> str:
        """What it asks for, such as ``restart without node02``."""
        verb = "restart" if self.restarts else self.action.value
        return f"{verb} without {', '.join(self.exclude)}" if self.exclude and self.restarts else verb


class Disposition(StrEnum):
    """Did it happen: from a fresh look at the scheduler only."""

    PENDING = "pending"
    CONVERGED = "converged"
    ABANDONED = "abandoned"


class Reconciliation(Value):
    """What a fresh look at the scheduler says of an advice."""

    disposition: Disposition
    reason: str
    """``desired_state_observed``, ``already_satisfied``, ``owner_cancelled``, ``person_intervened``,
    ``advice_expired``, ``job_gone``, ``mode_observe``, ``not_permitted``, ``not_offered``, ``not_requeueable``,
    ``superseded``, ``not_submitted``."""
    observed_at: datetime
    restart_count: int = Field(default=0, ge=0)
    excluded: tuple[str, ...] = ()
    """All nodes that the job now avoids, the user's own included."""
    submitted_at: datetime | None = None
    """The submit time that the fresh look showed; None when the job was gone."""
    eligible_at: datetime | None = None
    """From when on Slurm may start the next attempt; None where it did not say."""
    detail: str = ""
    resubmitted_as: str = ""
    """The job that was submitted in place of this one; empty where it was not."""

    @classmethod
    def abandoned(cls, reason: str, observed_at: datetime, detail: str = "") -> Reconciliation:
        """Return that an advice came to nothing, with as much of `detail` as is kept."""
        return cls(disposition=Disposition.ABANDONED, reason=reason, observed_at=observed_at, detail=detail[:500])

    @classmethod
    def unanswered(cls, observed_at: datetime, detail: str) -> Reconciliation:
        """Return that nobody knows what became of an advice, for as long as acts are tried."""
        return cls(disposition=Disposition.PENDING, reason="no_answer", observed_at=observed_at, detail=detail[:500])


class MilestoneKind(StrEnum):
    """The points of a recovery, in their usual order."""

    ADOPTED = "adopted"
    DETECTED = "detected"
    ATTRIBUTED = "attributed"
    ADVISED = "advised"
    APPROVED = "approved"
    ACTED = "acted"
    ELIGIBLE = "eligible"
    ALLOCATED = "allocated"
    RESUMED = "resumed"
    COMPLETED = "completed"


class Milestone(Value):
    """One point of a recovery with its time."""

    kind: MilestoneKind
    attempt: int = Field(ge=0)
    at: datetime
    detail: str = ""


class Progress(Value):
    """How far an attempt came, from completed markers only: an iteration line, a finished or loaded checkpoint."""

    iteration: int | None = None
    """The last finished iteration that a line reported; None while none was."""
    checkpoint: int | None = None
    """The iteration of the last checkpoint whose write *finished*."""
    resumed_from: int | None = None
    """The iteration that the attempt says it loaded at its start; None when it did not say."""
    first_iteration: int | None = None
    """The first iteration that this attempt reported."""
    last_at: datetime | None = None
    """When, by our clock, the last completed marker was read."""
    longest_interval_s: float = 0.0
    """The longest time between two completed markers of this attempt."""
    phase: str = "start-up"
    """``start-up``, ``compile``, ``train``, ``evaluate`` or ``checkpoint``."""
