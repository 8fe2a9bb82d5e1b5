"""The state of the simulated cluster: which jobs there are, who runs where, and what each of Slurm's verbs does.

Pure: it neither starts a process nor reads a clock. `Cluster.tick` says what is to be started, the verbs say what is to
be ended, and whoever runs the processes reports back through `Cluster.attempt_gone`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from activities.scheduler.protocol import Hold, JobRecord, JobState, JobUnknown, NodeRecord, Refused
from activities.scheduler.simulated_wire import JobSpec
from recovery.model import Value
from workers.simulator.endings import ENDINGS
from workers.simulator.job import HOLD_REASONS, PARTITION, Job
from workers.simulator.saved import SavedCluster


class Timing(Value):
    """How long things take, in seconds. The first two are Slurm's own figures."""

    requeue_delay_s: float = 121.0
    """From a requeue until the job may start again, unless StartTime=now clears it."""
    min_job_age_s: float = 300.0
    """How long an ended job stays listed."""
    epilog_s: float = 0.2
    """How long a job stays COMPLETING after its processes are gone."""
    bad_exit_wait_s: float = 0.3
    """From the first task's bad exit until the others are ended."""
    kill_wait_s: float = 2.0
    """From SIGTERM to SIGKILL."""


@dataclass(frozen=True)
class Launch:
    """An attempt that is to be started."""

    job_id: str
    number: int
    restart_count: int
    spec: JobSpec
    nodes: tuple[str, ...]
    stdout: Path
    array_job_id: str
    array_task_id: int


@dataclass(frozen=True)
class Termination:
    """An attempt whose processes are to be ended."""

    job_id: str
    why: str = ""
    """What the message in the job's output adds to CANCELLED."""
    said: str = ""
    """A line of slurmstepd's that comes before that message."""
    lost_node: str = ""
    """The node that died, when that is the cause."""


class Cluster:
    """All jobs and nodes. Verbs raise `JobUnknown` and `Refused` with Slurm's own words."""

    def __init__(self, nodes: Iterable[str], directory: Path, timing: Timing) -> None:
        self._nodes = tuple(nodes)
        self._down: set[str] = set()
        self._directory = directory
        self._timing = timing
        self._requeue_delay = timedelta(seconds=timing.requeue_delay_s)
        self._jobs: dict[str, Job] = {}
        self._next_number = 1

    # --- what outlives a crash ------------------------------------------------------------------------------------

    def save(self, *, journal_bytes: int = 0) -> SavedCluster:
        """Return everything that there is to know."""
        return SavedCluster(
            journal_bytes=journal_bytes,
            next_number=self._next_number,
            down=tuple(self._down),
            jobs=tuple(self._jobs.values()),
        )

    def restore(self, saved: SavedCluster, now: datetime) -> list[JobRecord]:
        """Be what was saved. Meanwhile all nodes failed and came back: what ran is requeued where it may be, else ends
        as NODE_FAIL. Returns those jobs."""
        self._next_number, self._down = saved.next_number, set(saved.down)
        self._jobs = {job.job_id: job for job in saved.jobs}
        ran = [job for job in self._jobs.values() if job.state is JobState.RUNNING]
        for node in {node for job in ran for node in job.nodes}:
            self.fail_node(node, now)
            self.restore_node(node)
        for job in self._jobs.values():
            if job.completing:
                job.processes_gone_at = now
        return [job.record() for job in ran]

    # --- what is to be seen ---------------------------------------------------------------------------------------

    def records(self) -> tuple[JobRecord, ...]:
        """Describe all jobs."""
        return tuple(job.record() for job in self._jobs.values())

    def record(self, job_id: str) -> JobRecord:
        """Describe one job."""
        return self._find(job_id).record()

    def spec(self, job_id: str) -> JobSpec:
        """Tell what a job was submitted with."""
        return self._find(job_id).spec

    def node_records(self) -> tuple[NodeRecord, ...]:
        """Describe all nodes."""
        holders = {node: job for job in self._jobs.values() if job.occupies_nodes for node in job.nodes}
        return tuple(self._describe_node(node, holders.get(node)) for node in self._nodes)

    def _describe_node(self, node: str, holder: Job | None) -> NodeRecord:
        partitions = frozenset({PARTITION})
        if node in self._down:
            states = frozenset({"DOWN", "NOT_RESPONDING"})
            return NodeRecord(name=node, states=states, reason="Not responding", partitions=partitions)
        if holder is None:
            return NodeRecord(name=node, states=frozenset({"IDLE"}), partitions=partitions)
        states = frozenset({"IDLE", "COMPLETING"}) if holder.completing else frozenset({"ALLOCATED"})
        return NodeRecord(name=node, states=states, partitions=partitions)

    # --- the verbs ------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, now: datetime) -> str:
        """Queue a job, or an array's tasks; return its id or the array's."""
        self._refuse_unknown_nodes(spec.exclude)
        if spec.nodes > len(self._nodes):
            raise Refused("Batch job submission failed: Requested node configuration is not available")
        number = self._next_number
        self._next_number += max(spec.array_tasks, 1)
        if not spec.array_tasks:
            self._queue(spec, number, str(number), now)
        for task in range(1, spec.array_tasks + 1):
            # Slurm gives the last task the array's own number.
            own_number = number if task == spec.array_tasks else number + task
            self._queue(spec, own_number, f"{number}_{task}", now, array_job_id=str(number), array_task_id=task)
        return str(number)

    def _queue(
        self, spec: JobSpec, number: int, job_id: str, now: datetime, *, array_job_id: str = "", array_task_id: int = 0
    ) -> None:
        output = (
            spec.output.replace("%j", str(number))
            .replace("%A", array_job_id or str(number))
            .replace("%a", str(array_task_id))
            .replace("%x", spec.name)
        )
        self._jobs[job_id] = Job(
            number=number,
            job_id=job_id,
            spec=spec,
            submitted_at=now,
            eligible_at=None if spec.held else now,
            hold=Hold.USER if spec.held else Hold.NONE,
            reason=HOLD_REASONS[Hold.USER] if spec.held else "None",
            stdout=self._directory / spec.working_directory / output,
            exclude=spec.exclude,
            requeueable=spec.requeueable,
            array_job_id=array_job_id,
            array_task_id=array_task_id,
        )

    def requeue(self, job_id: str, now: datetime, *, held: bool) -> list[Termination]:
        """Put a running or ended job back. Slurm does that even to one that its owner cancelled; and with `held` the
        hold that a person put on the running job is forgotten."""
        job = self._find(job_id)
        if job.state is JobState.PENDING:
            raise Refused(f"Job is pending execution for job {job_id}")
        if not job.requeueable:
            raise Refused(f"Requested operation is presently disabled for job {job_id}")
        was_running = job.state is JobState.RUNNING
        if held:
            job.hold = Hold.REQUEUED
        job.put_back(now, self._requeue_delay)
        return [Termination(job_id, "DUE TO JOB REQUEUE")] if was_running else []

    def constrain(self, job_id: str, *, exclude: tuple[str, ...] | None, admin_comment: str | None) -> None:
        """Set the exclusion list, the admin comment, or both; both or none when one is refused."""
        job = self._find(job_id)
        job.refuse_if_ended()
        if exclude is not None:
            job.refuse_unless_pending()
            self._refuse_unknown_nodes(exclude)
            job.exclude, job.bad_constraints = exclude, False
        if admin_comment is not None:
            job.admin_comment = admin_comment

    def release(self, job_id: str) -> None:
        """Lift a hold."""
        self._find(job_id).release()

    def hold(self, job_id: str, *, admin: bool) -> None:
        """Hold a job. One that runs goes on, and is held when it is requeued."""
        job = self._find(job_id)
        job.refuse_if_ended()
        job.hold = Hold.ADMIN if admin else Hold.USER
        job.reason = HOLD_REASONS[job.hold]

    def start_now(self, job_id: str, now: datetime, *, admin_comment: str | None = None) -> None:
        """Clear the delay before a pending job, and set the admin comment; both or none."""
        job = self._find(job_id)
        job.refuse_unless_pending()
        job.eligible_at = now
        if admin_comment is not None:
            job.admin_comment = admin_comment

    def allow_requeue(self, job_id: str) -> None:
        """Set Requeue=1."""
        job = self._find(job_id)
        job.refuse_if_ended()
        job.requeueable = True

    def cancel(self, job_id: str, now: datetime, *, by: str) -> list[Termination]:
        """End a job for good; nothing happens to one that ended already."""
        job = self._find(job_id)
        if job.state.ended:
            return []
        was_running = job.state is JobState.RUNNING
        job.end(JobState.CANCELLED, job.reason, now, exit_signal=15 if was_running else 0)
        job.cancelled_by = by
        return [Termination(job_id)] if was_running else []

    def end_attempt(self, job_id: str, state: JobState, now: datetime) -> list[Termination]:
        """End what runs in `state`, as a limit, the kernel or another job does."""
        job = self._find(job_id)
        if job.state is not JobState.RUNNING:
            raise Refused(f"Job {job_id} is not running")
        ending = ENDINGS[state]
        job.end(state, ending.reason, now, exit_signal=ending.exit_signal)
        return [Termination(job_id, ending.why, ending.said.format(number=job.number))]

    def fail_node(self, node: str, now: datetime) -> list[Termination]:
        """Let a node go DOWN. Slurm requeues what ran on it where it may, else ends it as NODE_FAIL."""
        self._refuse_unknown_nodes((node,))
        self._down.add(node)
        hit = [job for job in self._jobs.values() if job.state is JobState.RUNNING and node in job.nodes]
        for job in hit:
            if job.requeueable:
                job.put_back(now, self._requeue_delay)
            else:
                job.end(JobState.NODE_FAIL, "NodeDown", now, exit_signal=15)
        why = "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
        return [Termination(job.job_id, why, lost_node=node) for job in hit]

    def restore_node(self, node: str) -> None:
        """Bring a node back."""
        self._refuse_unknown_nodes((node,))
        self._down.discard(node)

    # --- the passing of time --------------------------------------------------------------------------------------

    def tick(self, now: datetime) -> list[Launch]:
        """Finish what is completing, forget what ended long ago, and start what fits, oldest job first."""
        for job in list(self._jobs.values()):
            self._finish_if_clean(job, now)
            self._forget_if_old(job, now)
        return list(self._start_what_fits(now))

    def attempt_gone(self, job_id: str, exit_code: int, exit_signal: int, now: datetime) -> None:
        """All processes of the attempt have ended, by themselves or because they were told to."""
        job = self._find(job_id)
        if job.state is JobState.RUNNING:
            failed = bool(exit_code or exit_signal)
            state, reason = (JobState.FAILED, "NonZeroExitCode") if failed else (JobState.COMPLETED, "None")
            job.end(state, reason, now, exit_code=exit_code, exit_signal=exit_signal)
        job.processes_gone_at = now

    def _finish_if_clean(self, job: Job, now: datetime) -> None:
        epilog = timedelta(seconds=self._timing.epilog_s)
        if job.completing and job.processes_gone_at is not None and job.processes_gone_at + epilog <= now:
            job.finish_completing(now, self._requeue_delay)

    def _forget_if_old(self, job: Job, now: datetime) -> None:
        if not job.state.ended or job.completing or job.ended_at is None:
            return
        if job.ended_at + timedelta(seconds=self._timing.min_job_age_s) <= now:
            del self._jobs[job.job_id]

    def _start_what_fits(self, now: datetime) -> Iterator[Launch]:
        occupied = {node for job in self._jobs.values() if job.occupies_nodes for node in job.nodes}
        free = [node for node in self._nodes if node not in occupied and node not in self._down]
        for job in self._jobs.values():
            if job.startable(now) and (nodes := self._allocate(job, free)):
                free = [node for node in free if node not in nodes]
                yield self._start(job, nodes, now)

    def _allocate(self, job: Job, free: list[str]) -> tuple[str, ...]:
        """Return the first of the free nodes that `job` may have; empty, with the reason in `job`, when they are too
        few."""
        if len(set(self._nodes) - set(job.exclude)) < job.spec.nodes:
            # Slurm sets the priority to 0: the job waits until somebody changes the list or releases it.
            job.reason, job.bad_constraints = "BadConstraints", True
            return ()
        allowed = [node for node in free if node not in job.exclude]
        if len(allowed) < job.spec.nodes:
            job.reason = "Resources"
            return ()
        return tuple(allowed[: job.spec.nodes])

    def _start(self, job: Job, nodes: tuple[str, ...], now: datetime) -> Launch:
        job.start(nodes, now)
        return Launch(
            job_id=job.job_id,
            number=job.number,
            restart_count=job.restart_count,
            spec=job.spec,
            nodes=nodes,
            stdout=job.stdout,
            array_job_id=job.array_job_id,
            array_task_id=job.array_task_id,
        )

    def _find(self, job_id: str) -> Job:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise JobUnknown(f"Invalid job id specified for job {job_id}") from None

    def _refuse_unknown_nodes(self, nodes: tuple[str, ...]) -> None:
        unknown = [node for node in nodes if node not in self._nodes]
        if unknown:
            raise Refused(f"Invalid node name specified: {unknown[0]}")
