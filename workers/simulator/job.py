"""One job of the simulated cluster: its state, its moves, and how Slurm would describe it.

What a move does was seen on a real Slurm 22.05.8. Times are handed in, nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState, Refused
from activities.scheduler.simulated_wire import JobSpec

HOLD_REASONS = {
    Hold.USER: "JobHeldUser",
    Hold.ADMIN: "JobHeldAdmin",
    Hold.REQUEUED: "job_requeued_in_held_state",
}
PARTITION = "main"


@dataclass
class Job:
    """A job in the queue, running, completing or ended."""

    number: int
    """SLURM_JOB_ID; of an array task another number than its `job_id`."""
    job_id: str
    spec: JobSpec
    submitted_at: datetime
    eligible_at: datetime | None
    hold: Hold
    stdout: Path
    exclude: tuple[str, ...]
    requeueable: bool
    array_job_id: str = ""
    array_task_id: int = 0
    state: JobState = JobState.PENDING
    reason: str = "None"
    completing: bool = False
    """The attempt is over, but its processes or the epilog are not yet."""
    processes_gone_at: datetime | None = None
    bad_constraints: bool = False
    restart_count: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    nodes: tuple[str, ...] = ()
    admin_comment: str = ""
    exit_code: int = 0
    exit_signal: int = 0
    cancelled_by: str = ""

    @property
    def occupies_nodes(self) -> bool:
        """Whether nobody else can have its nodes."""
        return self.state is JobState.RUNNING or self.completing

    def startable(self, now: datetime) -> bool:
        """Whether only free nodes are missing. Says in `reason` why not."""
        if self.state is not JobState.PENDING or self.completing or self.hold is not Hold.NONE or self.bad_constraints:
            return False
        if self.eligible_at is None:
            self.eligible_at = now
        self.reason = "BeginTime" if self.eligible_at > now else "None"
        return self.eligible_at <= now

    def start(self, nodes: tuple[str, ...], now: datetime) -> None:
        """Begin an attempt on `nodes`."""
        self.state, self.reason = JobState.RUNNING, "None"
        self.nodes, self.started_at, self.ended_at = nodes, now, None
        self.exit_code = self.exit_signal = 0

    def end(self, state: JobState, reason: str, now: datetime, *, exit_code: int = 0, exit_signal: int = 0) -> None:
        """End the job in `state`; it stays COMPLETING for as long as it occupies its nodes."""
        self.completing = self.occupies_nodes
        if self.state is JobState.PENDING:
            self.started_at = now
        self.state, self.reason, self.ended_at = state, reason, now
        self.exit_code, self.exit_signal = exit_code, exit_signal

    def put_back(self, now: datetime, delay: timedelta) -> None:
        """Requeue: at once the restart counts and the job is pending; what ran has to be gone before it can start."""
        self.completing = self.occupies_nodes
        self.restart_count += 1
        self.state, self.reason = JobState.PENDING, HOLD_REASONS.get(self.hold, "BeginTime")
        self.ended_at, self.cancelled_by = None, ""
        if not self.completing:
            self._enter_queue(now, delay)

    def finish_completing(self, now: datetime, delay: timedelta) -> None:
        """The nodes are clean: an ended job has ended, a requeued one enters the queue anew, with a new delay even when
        the delay was cleared while it was COMPLETING."""
        self.completing, self.processes_gone_at = False, None
        if self.state is JobState.PENDING:
            self._enter_queue(now, delay)

    def _enter_queue(self, now: datetime, delay: timedelta) -> None:
        self.submitted_at, self.eligible_at = now, now + delay
        self.nodes, self.started_at = (), None

    def release(self) -> None:
        """Lift any hold. Slurm also accepts it for a job that is not held, and for a running one."""
        self.refuse_if_ended()
        self.hold, self.bad_constraints = Hold.NONE, False
        if self.state is JobState.PENDING:
            self.reason = "None"
            self.exit_code = self.exit_signal = 0

    def refuse_if_ended(self) -> None:
        """Raise `Refused` as Slurm does for most updates of a job that ended."""
        if self.state.ended:
            raise Refused(f"Job has already finished for job {self.job_id}")

    def refuse_unless_pending(self) -> None:
        """Raise `Refused` as Slurm does for updates that only a pending job takes."""
        self.refuse_if_ended()
        if self.state is not JobState.PENDING:
            raise Refused(f"Job is no longer pending execution for job {self.job_id}")

    def record(self) -> JobRecord:
        """Describe the job with times in whole seconds, as Slurm tells them."""
        return JobRecord(
            job_id=self.job_id,
            job_number=str(self.number),
            name=self.spec.name,
            user=self.spec.user,
            partition=PARTITION,
            state=self.state,
            flags=frozenset({JobFlag.COMPLETING} if self.completing else ()),
            reason=self.reason,
            hold=self.hold,
            restart_count=self.restart_count,
            submitted_at=self.submitted_at.replace(microsecond=0),
            eligible_at=_whole_seconds(self.eligible_at),
            started_at=_whole_seconds(self.started_at),
            ended_at=_whole_seconds(self.ended_at),
            nodes=self.nodes,
            node_count=self.spec.nodes,
            excluded_nodes=self.exclude,
            comment=self.spec.comment,
            admin_comment=self.admin_comment,
            requeueable=self.requeueable,
            exit_code=self.exit_code,
            exit_signal=self.exit_signal,
            batch_host=self.nodes[0] if self.nodes else "",
            stdout=str(self.stdout),
            stderr=str(self.stdout),
            work_dir=self.spec.working_directory,
            array_job_id=self.array_job_id,
            cancelled_by=self.cancelled_by,
        )


def _whole_seconds(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment else None
