"""The simulated cluster as a `Scheduler`, and as the thing that jobs are submitted to and nodes fail in."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from activities.scheduler.protocol import (
    ClusterReading,
    Invalid,
    JobRecord,
    JobState,
    JobUnknown,
    NodeRecord,
    Refused,
    SchedulerUnavailable,
)
from activities.scheduler.simulated_wire import (
    MAX_LINE_BYTES,
    AllowRequeue,
    Answer,
    Cancel,
    Constrain,
    EndAttempt,
    ErrorKind,
    FailNode,
    Fault,
    Hold,
    Inject,
    JobSpec,
    ReadJob,
    ReadJobs,
    ReadNodes,
    ReadScript,
    Release,
    Request,
    Requeue,
    RestoreNode,
    Resubmit,
    Shutdown,
    StartNow,
    Submit,
)
from activities.scheduler.submission import Irrecoverable, Submission
from recovery.model import JobId, NodeName

DEFAULT_TIMEOUT_S = 10.0
_FIRST_LINE = "#!simulated"
SERVICE_USER = "slurm"
"""Whom the cluster records as the one who cancelled, when relight did."""


class SimulatedScheduler:
    """Implements `Scheduler` and `Resubmission` on the socket of ``python -m workers.simulator``."""

    def __init__(self, socket_path: Path, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._socket_path = socket_path
        self._timeout_s = timeout_s

    async def jobs(self) -> ClusterReading:
        """Read all jobs."""
        answer = await self._ask(ReadJobs())
        return ClusterReading(read_at=datetime.now(UTC), jobs=answer.jobs)

    async def job(self, job_id: JobId) -> JobRecord:
        """Read one job."""
        answer = await self._ask(ReadJob(job_id=job_id))
        if len(answer.jobs) != 1:
            raise SchedulerUnavailable(
                f"The simulated cluster answered with {len(answer.jobs)} records of job {job_id}"
            )
        return answer.jobs[0]

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Read all nodes."""
        return (await self._ask(ReadNodes())).nodes

    async def requeue_hold(self, job_id: JobId) -> None:
        """Put the job back, held."""
        await self._ask(Requeue(job_id=job_id, held=True))

    async def requeue(self, job_id: JobId) -> None:
        """Put the job back."""
        await self._ask(Requeue(job_id=job_id, held=False))

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        """Set the exclusion list, the admin comment, or both."""
        await self._ask(Constrain(job_id=job_id, exclude=exclude, admin_comment=admin_comment))

    async def release(self, job_id: JobId) -> None:
        """Release a hold."""
        await self._ask(Release(job_id=job_id))

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        """Clear the delay before a requeued job."""
        await self._ask(StartNow(job_id=job_id, admin_comment=admin_comment))

    async def allow_requeue(self, job_id: JobId) -> None:
        """Set Requeue=1."""
        await self._ask(AllowRequeue(job_id=job_id))

    async def cancel(self, job_id: JobId) -> None:
        """End the job for good, in the name of `SERVICE_USER`."""
        await self._ask(Cancel(job_id=job_id, by=SERVICE_USER))

    async def batch_script(self, job_id: JobId) -> str:
        """Return what stands for a batch script here: a first line, and the job's description."""
        spec = (await self._ask(ReadScript(job_id=job_id))).spec
        if spec is None:
            raise JobUnknown(f"the simulated cluster has no description of job {job_id}")
        return f"{_FIRST_LINE}\n{spec.model_dump_json()}"

    async def submission_of(self, job: JobRecord) -> Submission:
        """Return what submits the job again. Nothing keeps accounts here: a job that is forgotten can't be."""
        try:
            script = await self.batch_script(job.job_id)
        except JobUnknown as error:
            raise Irrecoverable(f"{error}, and the simulated cluster keeps no accounts") from error
        return Submission(script=script, owner=job.user, comment=job.comment, exclude=job.excluded_nodes)

    async def submit(self, submission: Submission) -> JobId:
        """Submit the description that stands in the script."""
        first, _, description = submission.script.partition("\n")
        if first != _FIRST_LINE:
            raise Invalid(f"a simulated job's script begins with {_FIRST_LINE}")
        told = {"comment": submission.comment, "exclude": submission.exclude, "held": submission.held}
        spec = JobSpec.model_validate_json(description).model_copy(update=told)
        return (await self._ask(Resubmit(spec=spec))).job_id

    async def _ask(self, request: Request) -> Answer:
        return await ask(self._socket_path, request, self._timeout_s)


class SimulatedCluster:
    """What people, hardware and the network do to the simulated cluster. Raises the protocol's errors."""

    def __init__(self, socket_path: Path, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._socket_path = socket_path
        self._timeout_s = timeout_s

    async def ready(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Wait until the cluster answers. Raises `SchedulerUnavailable` when it does not within `timeout_s`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                await self._ask(ReadNodes())
            except SchedulerUnavailable:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.05)
            else:
                return

    async def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id, or the array's id. Raises `Refused` when it could never start."""
        return (await self._ask(Submit(spec=spec))).job_id

    async def cancel(self, job_id: JobId, *, by: str) -> None:
        """A person's ``scancel``."""
        await self._ask(Cancel(job_id=job_id, by=by))

    async def hold(self, job_id: JobId, *, admin: bool = False) -> None:
        """A person's ``scontrol hold``."""
        await self._ask(Hold(job_id=job_id, admin=admin))

    async def release(self, job_id: JobId, *, by: str) -> None:
        """A person's ``scontrol release``."""
        await self._ask(Release(job_id=job_id, by=by))

    async def requeue(self, job_id: JobId, *, by: str = "administrator") -> None:
        """A person's ``scontrol requeue``."""
        await self._ask(Requeue(job_id=job_id, held=False, by=by))

    async def end_attempt(
        self, job_id: JobId, state: Literal[JobState.TIMEOUT, JobState.OUT_OF_MEMORY, JobState.PREEMPTED]
    ) -> None:
        """Let a limit, the kernel or another job end what runs. Raises `Refused` when nothing runs."""
        await self._ask(EndAttempt(job_id=job_id, state=state))

    async def fail_node(self, node: NodeName) -> None:
        """Let a node die with all its processes; Slurm then requeues its jobs or ends them as NODE_FAIL."""
        await self._ask(FailNode(node=node))

    async def restore_node(self, node: NodeName) -> None:
        """Bring a failed node back."""
        await self._ask(RestoreNode(node=node))

    async def inject(self, *, seed: int, rates: dict[Fault, float], delay_s: float = 1.0) -> None:
        """Let faults happen to the scheduler's calls from now on; no rates: none any more."""
        await self._ask(Inject(seed=seed, rates=rates, delay_s=delay_s))

    async def shutdown(self) -> None:
        """End the cluster with all its jobs."""
        await self._ask(Shutdown())

    async def _ask(self, request: Request) -> Answer:
        return await ask(self._socket_path, request, self._timeout_s)


async def ask(socket_path: Path, request: Request, timeout_s: float) -> Answer:
    """Send one request over a connection of its own. Raises the errors of `activities.scheduler.protocol`."""
    try:
        async with asyncio.timeout(timeout_s):
            line = await _exchange(socket_path, request.model_dump_json().encode())
    except TimeoutError:
        raise SchedulerUnavailable(
            f"The simulated cluster did not answer {request.verb} within {timeout_s:g} s: {socket_path}"
        ) from None
    except (OSError, ValueError) as error:
        raise SchedulerUnavailable(f"The simulated cluster cannot be reached at {socket_path}: {error}") from error
    if not line.endswith(b"\n"):
        raise SchedulerUnavailable(f"The simulated cluster closed the connection before it answered {request.verb}")
    try:
        answer = Answer.model_validate_json(line)
    except ValidationError as error:
        raise SchedulerUnavailable(
            f"The simulated cluster's answer to {request.verb} makes no sense: {error}"
        ) from error
    if answer.error is ErrorKind.JOB_UNKNOWN:
        raise JobUnknown(answer.message)
    if answer.error is ErrorKind.REFUSED:
        raise Refused(answer.message)
    return answer


async def _exchange(socket_path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket_path, limit=MAX_LINE_BYTES)
    try:
        writer.write(line + b"\n")
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
