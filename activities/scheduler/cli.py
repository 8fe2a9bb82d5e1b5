"""A real Slurm through its own commands: squeue, sinfo, scontrol and scancel.

Tried on Slurm 22.05.8, 24.11.5 and 26.05.5; what each verb does there is said at the verb. Two things hold for all of
them. A verb that got no answer may still be carried out: a controller that was stalled for longer than the command
waited did everything it had been asked, later. And the controller's saved state is up to five seconds old: after a
crash of slurmctld a job may be back where it was before a verb that had succeeded. So read before acting, and read
again after it.

Where the commands run, here or on a login host, is their runner's business.
"""

from __future__ import annotations

from datetime import UTC, datetime

from activities.evidence_settings import EvidenceSettings
from activities.scheduler import sinfo_table
from activities.scheduler.checked import checked_admin_comment, checked_job_id, checked_node_name
from activities.scheduler.protocol import (
    ClusterReading,
    JobRecord,
    NodeRecord,
    SchedulerUnavailable,
)
from activities.scheduler.site_commands import SiteCommands
from activities.scheduler.slurm_words import error_from, job_unknown
from activities.scheduler.squeue_json import read_jobs
from activities.scheduler.stacks import dump_stacks
from recovery.model import JobId, NodeName

_ALREADY_OVER = "already completing or completed"


class SlurmCli(SiteCommands):
    """The `Scheduler` of one cluster, and what its site is and allows, through commands that a `Runner` runs."""

    async def jobs(self) -> ClusterReading:
        """Read all jobs with one squeue."""
        return await self._squeue()

    async def job(self, job_id: JobId) -> JobRecord:
        """Read one job freshly. Slurm 22.05 sends all jobs even so; later versions only this one."""
        job_id = checked_job_id(job_id)
        reading = await self._squeue(f"--jobs={job_id}")
        for record in reading.jobs:
            if record.job_id == job_id:
                return record
        raise job_unknown(job_id)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Read all nodes with one sinfo."""
        finished = await self._runner.run(*sinfo_table.COMMAND)
        if finished.exit_code:
            raise error_from(finished.stderr, about="reading all nodes")
        return sinfo_table.read_nodes(finished.stdout)

    async def requeue_hold(self, job_id: JobId) -> None:
        """``scontrol requeuehold``. It answers before the attempt has ended: the job is COMPLETING for as long as its
        processes take to die, already with one restart more, then PENDING with a new submit time.

        What runs gets SIGCONT and SIGTERM at once, the batch script and all steps, and SIGKILL once the site's KillWait
        (30 s by default) is over, up to five seconds later; what a dying attempt returns counts for nothing. What
        ignores SIGKILL too, in a system call that never ends, keeps the job COMPLETING until UnkillableStepTimeout,
        when Slurm drains the node.

        Slurm does this to jobs that run, failed, completed, **and to cancelled ones**: only a read before tells whether
        the owner wanted it over. `Refused` when the job is pending, and when it was submitted with ``--no-requeue``.
        """
        await self._scontrol("requeuehold", checked_job_id(job_id), about=f"requeueing job {job_id}")

    async def requeue(self, job_id: JobId) -> None:
        """``scontrol requeue``. An ended job is PENDING when this returns, with one restart more, a new submit time and
        121 s until it may start, and takes changes from then on. One that runs ends as with `requeue_hold`."""
        await self._scontrol("requeue", checked_job_id(job_id), about=f"requeueing job {job_id}")

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        """``scontrol update``, in one request. Takes a pending job, also while it is still COMPLETING after a requeue.
        An ended job takes neither; a running one takes the comment, and an exclusion list only if it changes nothing.
        Slurm keeps the comment's bytes as they are: nothing in it needs quoting."""
        changes = []
        if exclude is not None:
            changes.append(f"ExcNodeList={','.join(map(checked_node_name, exclude))}")
        if admin_comment is not None:
            changes.append(f"AdminComment={checked_admin_comment(admin_comment)}")
        if changes:
            await self._update(job_id, *changes)

    async def release(self, job_id: JobId) -> None:
        """``scontrol release``. It lifts anybody's hold, and says nothing when there was none. Released while it is
        still COMPLETING, the job goes back without a hold once that is over."""
        await self._scontrol("release", checked_job_id(job_id), about=f"releasing job {job_id}")

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        """``StartTime=now``, in one request with the comment. While the job is COMPLETING it is accepted and lost: the
        delay is set when that ends."""
        comment = [] if admin_comment is None else [f"AdminComment={checked_admin_comment(admin_comment)}"]
        await self._update(job_id, "StartTime=now", *comment)

    async def allow_requeue(self, job_id: JobId) -> None:
        """``Requeue=1``. `Refused` for an ended job: once it has ended, ``--no-requeue`` is final."""
        await self._update(job_id, "Requeue=1")

    async def stacks(self, job: JobRecord, nodes: tuple[NodeName, ...], settings: EvidenceSettings) -> str:
        """Ask the job's processes for their stacks, in a step of their own; see `activities.scheduler.stacks`."""
        return await dump_stacks(self._runner, job, nodes, settings)

    async def cancel(self, job_id: JobId) -> None:
        """``scancel``. A job that has ended already is no error."""
        job_id = checked_job_id(job_id)
        # Without --verbose, scancel keeps "Invalid job id" to itself and exits with 0.
        finished = await self._runner.run("scancel", "--verbose", job_id)
        complaints = [line for line in finished.stderr.splitlines() if "error:" in line and _ALREADY_OVER not in line]
        if complaints or (finished.exit_code and _ALREADY_OVER not in finished.stderr):
            raise error_from("\n".join(complaints) or finished.stderr, about=f"cancelling job {job_id}")

    async def _squeue(self, *options: str) -> ClusterReading:
        finished = await self._runner.run("squeue", "--json", "--all", "--states=all", *options)
        read_at = datetime.now(UTC)
        if finished.exit_code:
            raise error_from(finished.stderr, about=f"reading jobs {' '.join(options)}".strip())
        try:
            return ClusterReading(read_at=read_at, jobs=read_jobs(finished.stdout, read_at))
        except SchedulerUnavailable as error:
            if finished.stderr:
                error.add_note(finished.stderr)
            raise

    async def _update(self, job_id: JobId, *changes: str) -> None:
        job_id = checked_job_id(job_id)
        fields = " and ".join(change.partition("=")[0] for change in changes)
        await self._scontrol("update", f"JobId={job_id}", *changes, about=f"setting {fields} of job {job_id}")

    async def _scontrol(self, *arguments: str, about: str) -> None:
        finished = await self._runner.run("scontrol", *arguments)
        if finished.exit_code:
            # scontrol puts most of its refusals on stdout.
            raise error_from(f"{finished.stderr}\n{finished.stdout}", about=about)
