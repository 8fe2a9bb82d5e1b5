"""The state of the simulated cluster, without processes and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState, JobUnknown, Refused
from activities.scheduler.simulated_wire import JobSpec
from workers.simulator.cluster import Cluster, Timing

NODES = ("node01", "node02", "node03", "node04")
TIMING = Timing(requeue_delay_s=121, min_job_age_s=300, epilog_s=1)


class Harness:
    """A cluster with a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
        self.cluster = Cluster(NODES, Path("/jobs"), TIMING)

    def submit(
        self, nodes: int = 1, *, exclude: tuple[str, ...] = (), requeueable: bool = True, held: bool = False
    ) -> str:
        spec = JobSpec(argv=("train",), nodes=nodes, exclude=exclude, requeueable=requeueable, held=held)
        return self.cluster.submit(spec, self.now)

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.cluster.tick(self.now)

    def running(self, nodes: int = 1, *, requeueable: bool = True) -> str:
        job_id = self.submit(nodes, requeueable=requeueable)
        self.after(0)
        assert self.record(job_id).state is JobState.RUNNING
        return job_id

    def gone(self, job_id: str, exit_code: int = 0) -> None:
        """Let the attempt's processes be gone and the epilog be over."""
        self.cluster.attempt_gone(job_id, exit_code, 0, self.now)
        self.after(TIMING.epilog_s)

    def record(self, job_id: str) -> JobRecord:
        return self.cluster.record(job_id)


@pytest.fixture
def on() -> Harness:
    return Harness()


def test_jobs_start_on_the_first_free_nodes_in_order(on: Harness) -> None:
    first, second = on.running(2), on.running(1)

    assert on.record(first).nodes == ("node01", "node02")
    assert on.record(second).nodes == ("node03",)


def test_a_job_that_finds_too_few_free_nodes_waits_for_resources(on: Harness) -> None:
    blocker = on.running(3)
    waiting = on.submit(2)
    on.after(0)
    assert (on.record(waiting).state, on.record(waiting).reason) == (JobState.PENDING, "Resources")

    on.gone(blocker)
    assert on.record(waiting).state is JobState.RUNNING


def test_a_requeue_counts_at_once_and_moves_the_submit_time_once_the_processes_are_gone(on: Harness) -> None:
    job_id = on.running()
    submitted = on.record(job_id).submitted_at
    on.after(10)

    orders = on.cluster.requeue(job_id, on.now, held=True)
    completing = on.record(job_id)
    assert [order.why for order in orders] == ["DUE TO JOB REQUEUE"]
    assert completing.flags == {JobFlag.COMPLETING}
    assert (completing.restart_count, completing.submitted_at) == (1, submitted)
    assert completing.nodes == ("node01",)

    on.gone(job_id)
    pending = on.record(job_id)
    assert (pending.state, pending.hold) == (JobState.PENDING, Hold.REQUEUED)
    assert pending.submitted_at > submitted
    assert pending.eligible_at == pending.submitted_at + timedelta(seconds=TIMING.requeue_delay_s)
    assert pending.nodes == ()


def test_a_requeued_job_starts_after_its_delay_when_nobody_clears_it(on: Harness) -> None:
    job_id = on.running()
    on.cluster.requeue(job_id, on.now, held=False)
    on.gone(job_id)
    assert on.record(job_id).reason == "BeginTime"

    on.after(TIMING.requeue_delay_s - 1)
    assert on.record(job_id).state is JobState.PENDING
    on.after(1)
    assert on.record(job_id).state is JobState.RUNNING


def test_a_held_job_never_starts_until_it_is_released(on: Harness) -> None:
    job_id = on.running()
    on.cluster.requeue(job_id, on.now, held=True)
    on.gone(job_id)
    on.cluster.start_now(job_id, on.now)
    on.after(10_000)
    assert on.record(job_id).state is JobState.PENDING

    on.cluster.release(job_id)
    on.after(0)
    assert on.record(job_id).state is JobState.RUNNING


def test_a_pending_job_is_not_requeued(on: Harness) -> None:
    job_id = on.submit(held=True)

    with pytest.raises(Refused, match="Job is pending execution for job 1"):
        on.cluster.requeue(job_id, on.now, held=True)


def test_the_exit_code_of_the_last_attempt_shows_until_the_release(on: Harness) -> None:
    job_id = on.running()
    on.gone(job_id, exit_code=3)
    on.cluster.requeue(job_id, on.now, held=True)
    assert on.record(job_id).exit_code == 3

    on.cluster.release(job_id)
    assert on.record(job_id).exit_code == 0


def test_an_ended_job_takes_no_updates(on: Harness) -> None:
    job_id = on.running()
    on.gone(job_id, exit_code=1)

    updates: tuple[Callable[[], None], ...] = (
        lambda: on.cluster.constrain(job_id, exclude=("node01",), admin_comment=None),
        lambda: on.cluster.constrain(job_id, exclude=None, admin_comment="late"),
        lambda: on.cluster.release(job_id),
        lambda: on.cluster.start_now(job_id, on.now),
        lambda: on.cluster.allow_requeue(job_id),
    )
    for update in updates:
        with pytest.raises(Refused, match="Job has already finished for job 1"):
            update()


def test_an_exclusion_and_a_comment_are_set_together_or_not_at_all(on: Harness) -> None:
    job_id = on.running()

    with pytest.raises(Refused):
        on.cluster.constrain(job_id, exclude=("node02",), admin_comment="marker")

    assert on.record(job_id).admin_comment == ""


def test_an_exclusion_of_a_node_that_does_not_exist_is_refused(on: Harness) -> None:
    job_id = on.submit(held=True, exclude=("node01",))

    with pytest.raises(Refused, match="Invalid node name specified: node99"):
        on.cluster.constrain(job_id, exclude=("node01", "node99"), admin_comment=None)

    assert on.record(job_id).excluded_nodes == ("node01",)


def test_a_job_whose_exclusions_leave_too_few_nodes_starts_once_they_are_changed(on: Harness) -> None:
    job_id = on.submit(nodes=4, exclude=("node01",))
    on.after(60)
    assert (on.record(job_id).state, on.record(job_id).reason) == (JobState.PENDING, "BadConstraints")

    on.cluster.constrain(job_id, exclude=(), admin_comment=None)
    on.after(0)
    assert on.record(job_id).state is JobState.RUNNING


def test_a_delay_that_is_cleared_while_the_job_completes_comes_back(on: Harness) -> None:
    job_id = on.running()
    on.cluster.requeue(job_id, on.now, held=True)
    on.cluster.release(job_id)
    on.cluster.start_now(job_id, on.now)
    on.gone(job_id)

    assert (on.record(job_id).state, on.record(job_id).reason) == (JobState.PENDING, "BeginTime")


def test_a_hold_on_a_running_job_outlives_a_requeue_but_not_a_requeuehold_and_its_release(on: Harness) -> None:
    requeued, requeue_held = on.running(), on.running()
    for job_id in (requeued, requeue_held):
        on.cluster.hold(job_id, admin=True)
    on.cluster.requeue(requeued, on.now, held=False)
    on.cluster.requeue(requeue_held, on.now, held=True)

    assert on.record(requeued).hold is Hold.ADMIN
    assert on.record(requeue_held).hold is Hold.REQUEUED


def test_a_hold_is_seen_on_a_job_that_runs_and_after_it_failed(on: Harness) -> None:
    job_id = on.running()
    on.cluster.hold(job_id, admin=False)
    assert (on.record(job_id).state, on.record(job_id).hold) == (JobState.RUNNING, Hold.USER)

    on.gone(job_id, exit_code=1)
    assert (on.record(job_id).state, on.record(job_id).hold) == (JobState.FAILED, Hold.USER)


def test_a_job_that_could_never_start_is_not_accepted(on: Harness) -> None:
    with pytest.raises(Refused, match="node configuration is not available"):
        on.submit(nodes=5)
    with pytest.raises(Refused, match="Invalid node name"):
        on.submit(exclude=("node99",))


def test_a_node_failure_requeues_what_may_be_requeued_and_ends_what_may_not(on: Harness) -> None:
    may, may_not, elsewhere = on.running(2), on.running(1, requeueable=False), on.running(1)

    for node in ("node02", "node03"):
        for order in on.cluster.fail_node(node, on.now):
            assert order.lost_node == node
            on.gone(order.job_id)

    assert (on.record(may).state, on.record(may).reason) == (JobState.PENDING, "BeginTime")
    assert on.record(may).restart_count == 1
    assert (on.record(may_not).state, on.record(may_not).reason) == (JobState.NODE_FAIL, "NodeDown")
    assert on.record(elsewhere).state is JobState.RUNNING
    assert [node.name for node in on.cluster.node_records() if not node.usable] == ["node02", "node03"]


def test_a_failed_node_takes_no_job_until_it_is_back(on: Harness) -> None:
    on.cluster.fail_node("node01", on.now)
    assert on.record(on.running()).nodes == ("node02",)

    on.cluster.restore_node("node01")
    assert on.record(on.running()).nodes == ("node01",)


def test_who_cancelled_is_on_record_and_a_second_cancel_changes_nothing(on: Harness) -> None:
    job_id = on.running()
    assert on.cluster.cancel(job_id, on.now, by="alice") != []
    on.gone(job_id)
    assert on.cluster.cancel(job_id, on.now, by="bob") == []

    job = on.record(job_id)
    assert (job.state, job.cancelled_by, job.exit_signal) == (JobState.CANCELLED, "alice", 15)


def test_slurm_itself_lets_a_cancelled_job_be_requeued(on: Harness) -> None:
    job_id = on.running()
    on.cluster.cancel(job_id, on.now, by="alice")
    assert on.cluster.requeue(job_id, on.now, held=True) == []
    on.gone(job_id)

    assert (on.record(job_id).state, on.record(job_id).restart_count) == (JobState.PENDING, 1)


def test_an_ended_job_is_forgotten_after_min_job_age(on: Harness) -> None:
    job_id = on.running()
    on.gone(job_id)
    on.after(TIMING.min_job_age_s - 2)
    assert on.record(job_id).state is JobState.COMPLETED

    on.after(2)
    with pytest.raises(JobUnknown, match=job_id):
        on.record(job_id)


def test_the_last_task_of_an_array_has_the_arrays_own_number(on: Harness) -> None:
    array_id = on.cluster.submit(JobSpec(argv=("train",), array_tasks=3), on.now)

    numbers = {launch.job_id: launch.number for launch in on.cluster.tick(on.now)}

    assert numbers == {f"{array_id}_1": 2, f"{array_id}_2": 3, f"{array_id}_3": 1}


class AnyOrder(RuleBasedStateMachine):
    """Verbs, node failures and ends of processes in any order."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.on = Harness()
        self.alive: set[str] = set()
        self.restarts: dict[str, int] = {}

    @rule(target=jobs, nodes=st.integers(1, 4), requeueable=st.booleans(), held=st.booleans())
    def submit(self, nodes: int, requeueable: bool, held: bool) -> str:
        return self.on.submit(nodes, requeueable=requeueable, held=held)

    @rule(seconds=st.sampled_from([0, 1, 121, 400]))
    def time_passes(self, seconds: int) -> None:
        self.on.now += timedelta(seconds=seconds)
        held = {job.job_id for job in self.on.cluster.records() if job.hold is not Hold.NONE}
        for launch in self.on.cluster.tick(self.on.now):
            assert launch.job_id not in held
            assert launch.job_id not in self.alive, "an attempt starts while the last one's processes live"
            assert not set(launch.nodes) & set(self.on.record(launch.job_id).excluded_nodes)
            self.alive.add(launch.job_id)

    @rule(data=st.data(), exit_code=st.integers(0, 1))
    def processes_end(self, data: st.DataObject, exit_code: int) -> None:
        if self.alive:
            job_id = data.draw(st.sampled_from(sorted(self.alive)))
            self.alive.discard(job_id)
            self.on.cluster.attempt_gone(job_id, exit_code, 0, self.on.now)

    @rule(job_id=jobs, verb=st.sampled_from(["requeue", "requeuehold", "cancel"]))
    def end_attempt(self, job_id: str, verb: str) -> None:
        try:
            if verb == "cancel":
                orders = self.on.cluster.cancel(job_id, self.on.now, by="alice")
            else:
                orders = self.on.cluster.requeue(job_id, self.on.now, held=verb == "requeuehold")
        except (Refused, JobUnknown):
            return
        assert {order.job_id for order in orders} <= self.alive, "only what has processes is told to end"

    @rule(job_id=jobs, exclude=st.sets(st.sampled_from(NODES), max_size=2))
    def update(self, job_id: str, exclude: set[str]) -> None:
        try:
            self.on.cluster.constrain(job_id, exclude=tuple(sorted(exclude)), admin_comment="marker")
        except (Refused, JobUnknown):
            return
        assert self.on.record(job_id).state is JobState.PENDING

    @rule(job_id=jobs, verb=st.sampled_from(["release", "hold", "start_now"]))
    def unblock_or_block(self, job_id: str, verb: str) -> None:
        try:
            if verb == "release":
                self.on.cluster.release(job_id)
            elif verb == "hold":
                self.on.cluster.hold(job_id, admin=False)
            else:
                self.on.cluster.start_now(job_id, self.on.now)
        except (Refused, JobUnknown):
            return

    @rule(node=st.sampled_from(NODES), fails=st.booleans())
    def node(self, node: str, fails: bool) -> None:
        if fails:
            self.on.cluster.fail_node(node, self.on.now)
        else:
            self.on.cluster.restore_node(node)

    @invariant()
    def no_node_is_given_out_twice(self) -> None:
        busy = [
            node
            for job in self.on.cluster.records()
            if job.state is JobState.RUNNING or job.flags
            for node in job.nodes
        ]
        assert len(busy) == len(set(busy))

    @invariant()
    def restarts_only_count_up(self) -> None:
        for job in self.on.cluster.records():
            assert job.restart_count >= self.restarts.get(job.job_id, 0)
            self.restarts[job.job_id] = job.restart_count


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
