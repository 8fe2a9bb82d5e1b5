"""What is said over the simulated cluster's socket: one JSON request a line, one JSON answer a line.

Line-delimited JSON and not HTTP, because nothing but this project speaks it: asyncio brings the server, pydantic checks
both directions, and no web server has to be a dependency.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from activities.scheduler.protocol import JobRecord, JobState, NodeRecord
from recovery.model import JobId, NodeName, Value

MAX_LINE_BYTES = 32 * 1024 * 1024
"""The longest request or answer: about 30,000 job records."""


class _Request(Value):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReadJobs(_Request):
    """All jobs."""

    verb: Literal["jobs"] = "jobs"


class ReadJob(_Request):
    """One job."""

    verb: Literal["job"] = "job"
    job_id: JobId


class ReadNodes(_Request):
    """All nodes."""

    verb: Literal["nodes"] = "nodes"


class Requeue(_Request):
    """``scontrol requeuehold``, or ``requeue`` when not `held`."""

    verb: Literal["requeue"] = "requeue"
    job_id: JobId
    held: bool = True
    by: str = ""
    """The person who asks; empty: relight."""


class Constrain(_Request):
    """``scontrol update ExcNodeList= AdminComment=``; None leaves the field as it is."""

    verb: Literal["constrain"] = "constrain"
    job_id: JobId
    exclude: tuple[NodeName, ...] | None = None
    admin_comment: str | None = None


class Release(_Request):
    """``scontrol release``."""

    verb: Literal["release"] = "release"
    job_id: JobId
    by: str = ""
    """The person who asks; empty: relight."""


class StartNow(_Request):
    """``scontrol update StartTime=now``."""

    verb: Literal["start_now"] = "start_now"
    job_id: JobId
    admin_comment: str | None = None


class AllowRequeue(_Request):
    """``scontrol update Requeue=1``."""

    verb: Literal["allow_requeue"] = "allow_requeue"
    job_id: JobId


class Cancel(_Request):
    """``scancel``."""

    verb: Literal["cancel"] = "cancel"
    job_id: JobId
    by: str


class JobSpec(_Request):
    """A job as ``sbatch`` and ``srun`` options would describe it: `argv` runs once on each node."""

    argv: tuple[str, ...] = Field(min_length=1)
    name: str = "job"
    user: str = "researcher"
    nodes: int = Field(default=1, ge=1)
    comment: str = ""
    exclude: tuple[NodeName, ...] = ()
    requeueable: bool = True
    held: bool = False
    array_tasks: int = Field(default=0, ge=0, le=1_000)
    """0: no array; otherwise tasks 1 to this number."""
    working_directory: str = ""
    """Empty: the cluster's state directory."""
    output: str = "slurm-%j.out"
    """Relative to the working directory; %j, %x, %A and %a are expanded."""
    append: bool = True
    """``--open-mode=append``; otherwise a requeue truncates the output."""
    label: bool = False
    """``srun -l``: each line behind its task's number."""
    environment: dict[str, str] = Field(default_factory=dict)


class Submit(_Request):
    """``sbatch``."""

    verb: Literal["submit"] = "submit"
    spec: JobSpec


class ReadScript(_Request):
    """``scontrol write batch_script``: what the job was submitted with."""

    verb: Literal["script"] = "script"
    job_id: JobId


class Resubmit(_Request):
    """``sbatch`` by relight, which the scheduler may lose or repeat as any other call of its."""

    verb: Literal["resubmit"] = "resubmit"
    spec: JobSpec


class Hold(_Request):
    """``scontrol hold`` by the user, or by an administrator."""

    verb: Literal["hold"] = "hold"
    job_id: JobId
    admin: bool = False


class EndAttempt(_Request):
    """What runs ends in `state`, as limits, the kernel and other jobs end it: TIMEOUT, OUT_OF_MEMORY, PREEMPTED."""

    verb: Literal["end_attempt"] = "end_attempt"
    job_id: JobId
    state: Literal[JobState.TIMEOUT, JobState.OUT_OF_MEMORY, JobState.PREEMPTED]


class FailNode(_Request):
    """The node dies with all its processes."""

    verb: Literal["fail_node"] = "fail_node"
    node: NodeName


class RestoreNode(_Request):
    """A node that failed comes back."""

    verb: Literal["restore_node"] = "restore_node"
    node: NodeName


class Fault(StrEnum):
    """What can happen to a request on its way."""

    LOSE_REQUEST = "lose_request"
    """It never arrives; the caller gets no answer."""
    LOSE_ANSWER = "lose_answer"
    """It takes effect; the caller gets no answer."""
    DELAY_REQUEST = "delay_request"
    """It takes effect late, perhaps after the caller gave up."""
    DELAY_ANSWER = "delay_answer"
    """It takes effect; the answer comes late."""
    DUPLICATE = "duplicate"
    """It takes effect twice; the caller gets the second answer."""


class Inject(_Request):
    """Let faults happen to the scheduler's calls from now on, at most one to a call; replaces what was injected before.

    Control calls (submit, hold, ends of attempts and nodes, inject, shutdown) are spared.
    """

    verb: Literal["inject"] = "inject"
    seed: int = 0
    rates: dict[Fault, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """The share of calls that each fault happens to; the sum is at most 1."""
    delay_s: float = Field(default=1.0, ge=0)


class Shutdown(_Request):
    """End the cluster with all its jobs."""

    verb: Literal["shutdown"] = "shutdown"


ReadRequest = ReadJobs | ReadJob | ReadNodes | ReadScript
ChangeRequest = Requeue | Constrain | Release | StartNow | AllowRequeue | Cancel | Resubmit
ControlRequest = Submit | Hold | EndAttempt | FailNode | RestoreNode | Inject | Shutdown
Request = ReadRequest | ChangeRequest | ControlRequest

REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="verb")])


class ErrorKind(StrEnum):
    """Which of the protocol's errors an answer carries."""

    NONE = "none"
    JOB_UNKNOWN = "job_unknown"
    REFUSED = "refused"


class Answer(Value):
    """The answer to any request; only the fields that the request asked for are filled."""

    error: ErrorKind = ErrorKind.NONE
    message: str = ""
    jobs: tuple[JobRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    job_id: str = ""
    """Of a submitted job; for an array the array's id."""
    spec: JobSpec | None = None
