"""What a Slurm site is and allows, beside its jobs: configuration, partitions, reservations, accounting, capabilities.

Each transport answers as far as its language reaches. What it can't tell is `Unknown` with the reason, never a default
that looks like an answer: unknown is not "no", and not "failed".
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, runtime_checkable

from pydantic import Field

from activities.scheduler.protocol import JobFlag, JobState
from recovery.model import JobId, NodeName, Value

Thing = TypeVar("Thing")


class Known(Value, Generic[Thing]):
    """A fact that the site told."""

    value: Thing


class Unknown(Value):
    """A fact that could not be learned."""

    why: str = Field(max_length=300)


class Answer(StrEnum):
    """Whether something can be done here."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Capability(Value):
    """One answer, with its reason unless it is a plain yes."""

    answer: Answer
    reason: str = Field(default="", max_length=300)

    @classmethod
    def yes(cls) -> Capability:
        """Return that it can be done."""
        return cls(answer=Answer.YES)

    @classmethod
    def no(cls, reason: str) -> Capability:
        """Return that it can't be done; `reason` says why, and what would change that."""
        return cls(answer=Answer.NO, reason=reason[:300])

    @classmethod
    def unknown(cls, reason: str) -> Capability:
        """Return that nobody answered the question; `reason` says who did not."""
        return cls(answer=Answer.UNKNOWN, reason=reason[:300])


class Capabilities(Value):
    """What relight can do on a cluster through one transport, with the account that it runs under."""

    requeue: Capability
    """End an attempt and put the job back."""
    hold: Capability
    """Put it back held, and release it."""
    exclude: Capability
    """Set the exclusion list of a pending job."""
    admin_comment: Capability
    """Write AdminComment, which carries the mark of our holds."""
    batch_script: Capability
    """Read jobs' batch scripts: they name the files of steps, and a job that is submitted again needs its own."""
    submit_for_others: Capability
    """Submit a batch job as another user."""
    accounting: Capability
    """Read the attempts of jobs that slurmctld has forgotten."""

    @classmethod
    def all_unknown(cls, reason: str) -> Capabilities:
        """Return that nobody answered; `reason` says why."""
        unknown = Capability.unknown(reason)
        return cls(
            requeue=unknown,
            hold=unknown,
            exclude=unknown,
            admin_comment=unknown,
            batch_script=unknown,
            submit_for_others=unknown,
            accounting=unknown,
        )

    def in_the_way_of_acts(self) -> dict[str, Capability]:
        """Return what acting needs and is not a plain yes, by name. Without all four, a recovery would stop half way:
        a job requeued that can't be kept off its bad node, or one held that the watchdog can't tell from a person's."""
        needed = {
            "requeue": self.requeue,
            "hold": self.hold,
            "exclude": self.exclude,
            "admin_comment": self.admin_comment,
        }
        return {name: capability for name, capability in needed.items() if capability.answer is not Answer.YES}


class Controller(Value):
    """One slurmctld of the cluster."""

    host: str
    role: str
    """``primary`` or ``backup``."""
    answers: Answer


class SiteFacts(Value):
    """Slurm's configuration, as far as relight depends on it."""

    slurm_version: Known[str] | Unknown
    """Such as ``22.05.8``."""
    cluster_name: Known[str] | Unknown
    """ClusterName."""
    min_job_age: Known[timedelta] | Unknown
    """MinJobAge: how long an ended job stays in slurmctld's memory."""
    requeue_delay: Known[timedelta] | Unknown
    """How long a requeued job waits before it may start."""
    kill_wait: Known[timedelta] | Unknown
    """KillWait: between SIGTERM and SIGKILL."""
    preempt_mode: Known[frozenset[str]] | Unknown
    """PreemptMode's words, upper case, such as ``{"GANG", "SUSPEND"}`` or ``{"OFF"}``."""
    job_requeue: Known[bool] | Unknown
    """JobRequeue: whether jobs may be requeued unless they say otherwise."""
    max_batch_requeue: Known[int] | Unknown
    """How many automatic requeues of one batch job Slurm does before it holds the job."""
    accounting_storage_type: Known[str] | Unknown
    """AccountingStorageType, such as ``accounting_storage/slurmdbd``."""
    accounting_store_flags: Known[frozenset[str]] | Unknown
    """AccountingStoreFlags, lower case, such as ``{"job_comment", "job_script"}``."""
    scheduler_parameters: Known[tuple[str, ...]] | Unknown
    """SchedulerParameters, one item each."""
    controllers: Known[tuple[Controller, ...]] | Unknown
    """The cluster's controllers and whether each answers a ping."""
    slurm_user: Known[str] | Unknown = Unknown(why="not asked for")
    """SlurmUser's name: the account that may do everything."""
    private_data: Known[frozenset[str]] | Unknown = Unknown(why="not asked for")
    """PrivateData's words, lower case, such as ``{"jobs"}``: what plain users may not see of others."""
    clock_skew: Known[timedelta] | Unknown = Unknown(why="not measured")
    """How far the controller's clock is ahead of ours; negative: behind."""

    @property
    def has_accounting(self) -> Answer:
        """Whether ended jobs can be asked for when slurmctld has forgotten them."""
        if isinstance(self.accounting_storage_type, Unknown):
            return Answer.UNKNOWN
        return Answer.YES if "slurmdbd" in self.accounting_storage_type.value else Answer.NO


class Partition(Value):
    """One partition."""

    name: str
    state: str
    """Slurm's word: ``UP``, ``DOWN``, ``DRAIN``, ``INACTIVE``."""
    is_default: bool = False
    nodes: tuple[NodeName, ...] = ()
    max_time: timedelta | None = None
    """None: no limit."""
    max_nodes: int | None = None
    """None: no limit."""
    preempt_mode: str = ""
    """Slurm's word, such as ``OFF``, ``REQUEUE``; empty: the cluster's."""
    grace_time: timedelta = timedelta()
    """What a preempted job gets between the warning and its end."""
    priority_tier: int = 0


class Reservation(Value):
    """One advance reservation."""

    name: str
    starts_at: datetime
    ends_at: datetime
    nodes: tuple[NodeName, ...] = ()
    flags: frozenset[str] = frozenset()
    """Upper-case words, such as ``MAINT``, ``SPEC_NODES``, ``IGNORE_JOBS``."""
    state: str = ""
    """Slurm's word, such as ``ACTIVE``, ``INACTIVE``."""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str = ""

    def covers(self, node: NodeName, at: datetime) -> bool:
        """Whether the reservation has `node` at that time."""
        return self.starts_at <= at < self.ends_at and node in self.nodes


class AccountedAttempt(Value):
    """One attempt of a job, as accounting tells of it."""

    job_id: JobId
    """As Slurm's commands take it: array tasks are ``<array>_<task>``."""
    job_number: str = ""
    """Slurm's own number of it; empty where it is not told."""
    name: str = ""
    user: str = ""
    partition: str = ""
    state: JobState
    state_words: str = ""
    """Slurm's own text, such as ``CANCELLED by 1000`` or a word that is newer than this version of relight."""
    flags: frozenset[JobFlag] = frozenset()
    reason: str = ""
    submitted_at: datetime
    """Of this attempt: Slurm moves it at each requeue."""
    eligible_at: datetime | None = None
    started_at: datetime | None = None
    """None: it never started."""
    ended_at: datetime | None = None
    """None: it has not ended, as far as accounting knows."""
    nodes: tuple[NodeName, ...] = ()
    node_count: int = Field(default=0, ge=0)
    exit_code: int = 0
    exit_signal: int = 0
    cancelled_by: str = ""
    """A user name or uid, where accounting says so."""
    comment: str = ""
    """Empty also where AccountingStoreFlags lacks ``job_comment``."""
    admin_comment: str = ""


@runtime_checkable
class SiteReader(Protocol):
    """What every real transport tells of its site."""

    async def facts(self) -> SiteFacts:
        """Read the configuration; what this transport can't tell is `Unknown` in it. Raises `SchedulerUnavailable`."""
        ...

    async def capabilities(self) -> Capabilities:
        """Find out what can be done here. Never raises: without an answer everything is unknown."""
        ...


@runtime_checkable
class AccountsReader(Protocol):
    """A transport that reads accounting."""

    async def accounting(self, job_id: JobId) -> tuple[AccountedAttempt, ...]:
        """Read all attempts of a job from accounting, the oldest first; empty when accounting answered and has none.

        A job id may have been used before: the submit times tell. Raises `SchedulerUnavailable` when no usable answer
        came, and where the site keeps no accounting.
        """
        ...


class ReservationReader(Protocol):
    """What tells of the reservations. Raises `SchedulerUnavailable`."""

    async def reservations(self) -> tuple[Reservation, ...]:
        """Read all reservations."""
        ...


@runtime_checkable
class PlacesReader(ReservationReader, Protocol):
    """A transport that reads what nodes are grouped into. Both methods raise `SchedulerUnavailable`."""

    async def partitions(self) -> tuple[Partition, ...]:
        """Read all partitions."""
        ...
