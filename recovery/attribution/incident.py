"""What attribution is given: everything one attempt said, and what the scheduler says of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from recovery.model import SymptomKind, Value


class LogLine(Value):
    """One line as some source gave it."""

    text: str
    at: datetime | None = None
    """When the source says it was printed; None where it carries no time of its own."""
    host: str = ""
    """The node that printed it, where the *source* knows (a file per node, a collector's label); else empty."""
    rank: int | None = None
    """The global rank, where the source knows."""
    stream: str = ""
    """``stdout``, ``stderr``, ``syslog``, ``slurm``, or empty."""
    source: str = ""
    """Where it was read, for people: a file path, a store's stream."""
    number: int | None = None
    """Its line number in `source`, from 1."""


class MetricSample(Value):
    """One sample of a metric series in Prometheus' text form, such as ``DCGM_FI_DEV_GPU_UTIL{gpu="0",...} 100``."""

    at: datetime | None = None
    host: str = ""
    text: str


_FAILED_STATES = frozenset(
    {"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "CANCELLED", "BOOT_FAIL", "DEADLINE"}
)


class JobFacts(Value):
    """What the scheduler knows of the attempt."""

    job_id: str = ""
    """Messages about other jobs are left aside; empty when unknown."""
    job_number: str = ""
    """SLURM_JOB_ID, by which daemons and exporters know the job: a task of an array has another one than ``A_T``. Empty
    when unknown."""
    nodes: tuple[str, ...] = ()
    """The allocation in rank order (block distribution)."""
    in_rank_order: bool = True
    """False for a het job, whose steps may run on some components only: where a rank is, only the log can tell then."""
    gpus_per_node: int = Field(default=0, ge=0)
    """0 when unknown."""
    tasks_per_node: int = Field(default=0, ge=0)
    """0 when unknown."""
    state: str = ""
    """Slurm's base state such as ``RUNNING`` or ``FAILED``; empty when there is no scheduler to ask."""
    exit_code: int = 0
    exit_signal: int = 0
    cancelled_by: str = ""
    """User name or uid of who cancelled it."""
    reason: str = ""
    """Slurm's Reason."""
    batch_host: str = ""
    failed_node: str = ""
    """The node that the scheduler itself names as failed."""

    @property
    def has_failed(self) -> bool:
        """Whether the scheduler says that it ended otherwise than well."""
        return self.state in _FAILED_STATES

    def is_named(self, job: str) -> bool:
        """Whether `job`, as a line or a label names one, may be this. Of a task without a known number the array's
        may be."""
        known = self.job_number or self.job_id.partition("_")[0]
        return not self.job_id or job in (self.job_id, known)


class Incident(Value):
    """One attempt, all there is to know about it. Earlier attempts' lines may precede: they count as history only."""

    lines: tuple[LogLine, ...] = ()
    """Per source in its own order; sources may follow one another."""
    metrics: tuple[MetricSample, ...] = ()
    facts: JobFacts = JobFacts()
    detected: SymptomKind = SymptomKind.NONE
    """What detection saw, where it did: a hang or a straggler needs no second proof then."""
    silence: timedelta | None = None
    """How long nothing had been finished when the attempt ended or was asked about, where a watch saw that by its own
    clock; None: told from the lines' stamps, whose zone is often not known."""
    now: datetime | None = None
    """The time of asking, with zone; None for old logs, whose own last time stands in."""
