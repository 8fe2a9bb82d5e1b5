"""What it takes to submit a batch job, and to submit one again as it was: its script, its options, its owner."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field

from activities.scheduler.protocol import JobRecord, Refused
from recovery.model import JobId, NodeName, Value


class Irrecoverable(Refused):
    """A job can't be submitted again as it was; the message says what is missing."""


class Resources(Value):
    """Generic resources that a job asks for, such as 8 GPUs a node."""

    per: Literal["job", "node", "socket", "task"]
    what: str = Field(max_length=1_000)
    """As Slurm writes it: ``gres:gpu:h100:8``, ``gres/gpu:8``."""


class Submission(Value):
    """A batch job to submit. What is empty is left to its script, and then to Slurm's own defaults."""

    script: str = Field(max_length=4_000_000)
    """The batch script's text, ``#!`` line first. Its ``#SBATCH`` lines hold where nothing here says otherwise."""
    arguments: tuple[str, ...] = ()
    """Of the script."""
    owner: str = ""
    """The user to submit as; empty: the account that relight runs under, with the environment that it has."""
    group: str = ""
    """The owner's group; never empty where `owner` is another user."""
    name: str = Field(default="", max_length=200)
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    licenses: str = ""
    node_count: int | None = Field(default=None, ge=1)
    task_count: int | None = Field(default=None, ge=1)
    tasks_per_node: int | None = Field(default=None, ge=1)
    cpus_per_task: int | None = Field(default=None, ge=1)
    memory_per_node_mib: int | None = Field(default=None, ge=1)
    memory_per_cpu_mib: int | None = Field(default=None, ge=1)
    gpus: tuple[Resources, ...] = ()
    """Generic resources, GPUs above all."""
    exclusive: bool = False
    time_limit: timedelta | None = None
    comment: str = ""
    exclude: tuple[NodeName, ...] = ()
    required: tuple[NodeName, ...] = ()
    held: bool = False
    requeueable: bool | None = None
    """None: as the script and the site say."""
    working_directory: str = ""
    stdout: str = ""
    stderr: str = ""
    more: tuple[str, ...] = ()
    """Other options of sbatch, one word each, as they stood on the job's own command line."""


@runtime_checkable
class Resubmission(Protocol):
    """Submitting a job again that has left slurmctld's memory or can't be requeued."""

    async def batch_script(self, job_id: JobId) -> str:
        """Return the job's batch script from the controller, else from accounting.

        Raises `JobUnknown` where neither has it, `NotPermitted` where it is another user's and may not be read.
        """
        ...

    async def submission_of(self, job: JobRecord) -> Submission:
        """Return what it takes to submit `job` again as it was submitted: its script and its options, from the
        controller while that knows the job, else from accounting. `job` may have been read long ago.

        Raises `Irrecoverable` with the reason where that can't be had, or could not be submitted as the job's owner.
        """
        ...

    async def submit(self, submission: Submission) -> JobId:
        """Submit, and return the job's id. Raises `Invalid`, `Refused`, and `NotPermitted` for another owner than the
        account that relight runs under where that may not submit for others."""
        ...
