"""What every scheduler transport offers: a bulk read, a fresh read, and the few verbs of the action protocol.

Errors form a small tree whose class decides what happens next::

    SchedulerError
    ├── SchedulerUnavailable   no usable answer: unknown, try again later, never a reason to act
    ├── JobUnknown             the scheduler answered and does not know the job (any more)
    └── Refused                the scheduler answered no to a verb
        ├── NotPermitted       ... because this account may not do it
        │   └── NotOffered     ... because the way to the scheduler has no such verb, whoever asks
        ├── NotPending         ... because the job has left the queue since it was read
        └── Invalid            ... because what was asked for is no node, partition or limit of this cluster
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pydantic import Field

from activities.scheduler.dependency import Dependency
from recovery.model import JobId, NodeName, Value


class SchedulerError(Exception):
    """Root of all scheduler errors. The message says what happened, to which job, and what to do next."""


class SchedulerUnavailable(SchedulerError):
    """No usable answer: a time-out, a refused connection, garbage. The state of every job is unknown."""


class JobUnknown(SchedulerError):
    """The scheduler answered that there is no such job."""


class Refused(SchedulerError):
    """The scheduler answered no to a verb: the job's state does not allow it."""


class NotPermitted(Refused):
    """The account that relight runs under may not do this (see `activities.scheduler.rights`)."""


class NotOffered(NotPermitted):
    """The version of the interface through which the scheduler is asked has no such verb: use another one."""


class NotPending(Refused):
    """The job is not pending any more, and this can be changed of a pending job only: read it again."""


class Invalid(Refused):
    """What was asked for makes no sense on this cluster, however often it is asked: a node or partition that does not
    exist, more than a limit allows. Ask for something else."""


class JobState(StrEnum):
    """Slurm's base states, by their own names. `UNKNOWN` stands for a word that this version does not know."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"

    @property
    def ended(self) -> bool:
        """Whether an attempt in this state has ended."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.UNKNOWN)


class JobFlag(StrEnum):
    """Slurm's state flags that matter here."""

    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    REQUEUED = "REQUEUED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    RESIZING = "RESIZING"


class Hold(StrEnum):
    """Why a job is held, from Slurm's Reason and priority. A person may also hold a job that runs: it goes on, and
    stays down once it is requeued or has ended."""

    NONE = "none"
    USER = "user"
    """JobHeldUser."""
    ADMIN = "admin"
    """JobHeldAdmin."""
    REQUEUED = "requeued"
    """job_requeued_in_held_state: what requeuehold leaves behind, ours or another's."""
    LAUNCH_FAILED = "launch_failed"
    """launch failed requeued held."""


class Component(Value):
    """One component of a het job."""

    job_id: JobId
    """Its own number."""
    partition: str = ""
    nodes: tuple[NodeName, ...] = ()
    node_count: int = Field(default=1, ge=0)
    excluded_nodes: tuple[NodeName, ...] = ()
    required_nodes: tuple[NodeName, ...] = ()


class JobRecord(Value):
    """One job as the scheduler describes it at one moment."""

    job_id: JobId
    """As Slurm's commands take it: array tasks are ``<array>_<task>``."""
    job_number: str = ""
    """Slurm's own number of it, SLURM_JOB_ID: of an array's task another one than the array's, but for the last. Empty
    where it is not told."""
    name: str = ""
    user: str = ""
    partition: str = ""
    state: JobState
    flags: frozenset[JobFlag] = frozenset()
    reason: str = ""
    hold: Hold = Hold.NONE
    restart_count: int = Field(default=0, ge=0)
    submitted_at: datetime
    """Slurm moves this at each requeue."""
    eligible_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    nodes: tuple[NodeName, ...] = ()
    """The allocation, in Slurm's order (rank order for block distribution); empty while pending."""
    node_count: int = Field(default=1, ge=0)
    """How many nodes the job asks for."""
    tasks_per_node: int = Field(default=0, ge=0)
    """``--ntasks-per-node``; 0 where the job does not ask for it or it is not told. Slurm's count of all tasks says
    nothing of it: without a word it is the number of nodes, whatever the script starts on them."""
    excluded_nodes: tuple[NodeName, ...] = ()
    required_nodes: tuple[NodeName, ...] = ()
    reservation: str = ""
    """The reservation that the job asks for, several with commas between them; empty: none."""
    constraint: str = ""
    """The features that its nodes must have, as ``--constraint`` says it; empty: none."""
    comment: str = ""
    admin_comment: str = ""
    requeueable: bool = True
    """Slurm's Requeue=1; False after ``--no-requeue``."""
    exit_code: int = 0
    exit_signal: int = 0
    batch_host: str = ""
    stdout: str = ""
    """Absolute path with Slurm's filename patterns expanded; empty when there is none."""
    stderr: str = ""
    work_dir: str = ""
    """Where the batch script runs; empty where that is not told."""
    array_job_id: str = ""
    het_leader_id: str = ""
    """The het job's leader id when this is a component, else empty."""
    components: tuple[Component, ...] = ()
    """A het job's, the leader's own first. `nodes`, `node_count` and `required_nodes` are of all of them then, and
    `excluded_nodes` what all of them avoid; `reservation` and `constraint` are what all of them ask for. Empty: no het
    job, or no leader."""
    dependency: Dependency = Dependency()
    """What the job waits for before it may start."""
    cancelled_by: str = ""
    """Who cancelled it, where the scheduler says so: a user name or uid."""

    @property
    def partitions(self) -> frozenset[str]:
        """The partition, and those of a het job's components."""
        return frozenset({self.partition, *(part.partition for part in self.components)})


class NodeRecord(Value):
    """One node as the scheduler describes it."""

    name: NodeName
    states: frozenset[str]
    """Upper-case words, such as IDLE, ALLOCATED, DOWN, DRAIN, NOT_RESPONDING."""
    reason: str = ""
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    """Those that it has, or may be rebooted into (Slurm's available features)."""

    @property
    def sound(self) -> bool:
        """Whether Slurm shows nothing that would keep a job from starting on it once it is free."""
        return not self.states & {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING"}

    @property
    def usable(self) -> bool:
        """Whether a job without a reservation could start on it once it is free."""
        return self.sound and "MAINT" not in self.states


class ClusterReading(Value):
    """All jobs of a cluster from one bulk read."""

    read_at: datetime
    """Our clock when the answer was complete."""
    jobs: tuple[JobRecord, ...]


class JobReader(Protocol):
    """What tells of one job. Raises `SchedulerUnavailable` when no usable answer came in time."""

    async def job(self, job_id: JobId) -> JobRecord:
        """Read one job freshly. Raises `JobUnknown`."""
        ...


class NodeReader(Protocol):
    """What tells of the nodes. Raises `SchedulerUnavailable` when no usable answer came in time."""

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Read all nodes in one call."""
        ...


class Scheduler(JobReader, NodeReader, Protocol):
    """A cluster's scheduler. Every method raises `SchedulerUnavailable` when no usable answer came in time."""

    async def jobs(self) -> ClusterReading:
        """Read all jobs in one call. A job that ended stays listed for the site's MinJobAge, then vanishes."""
        ...

    async def requeue_hold(self, job_id: JobId) -> None:
        """End the attempt if it runs and put the job back, held. Raises `Refused`, `JobUnknown`."""
        ...

    async def requeue(self, job_id: JobId) -> None:
        """The same without a hold: the job starts by itself after the scheduler's delay."""
        ...

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        """Set what is not None: the whole exclusion list (empty tuple: clear it) and the admin comment. The exclusion
        list of a job that is not pending cannot be changed: `Refused`."""
        ...

    async def release(self, job_id: JobId) -> None:
        """Release a hold."""
        ...

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        """Clear the delay that Slurm puts before a requeued job (StartTime=now), and set what is not None with it."""
        ...

    async def allow_requeue(self, job_id: JobId) -> None:
        """Set Requeue=1."""
        ...

    async def cancel(self, job_id: JobId) -> None:
        """End the job for good."""
        ...
