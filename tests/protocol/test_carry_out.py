"""Orders carried out on the simulated cluster, a process of its own, over a socket that loses and doubles calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.scheduler.marker import Account, Marker, read_marker, write_marker
from activities.scheduler.protocol import (
    Hold,
    JobRecord,
    JobState,
    NodeRecord,
    NotPermitted,
    Refused,
    SchedulerUnavailable,
)
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.simulated import SimulatedScheduler
from activities.scheduler.simulated_wire import Fault, JobSpec
from activities.scheduler.steps import ActOrder
from recovery.model import Action, Advice, Disposition, JobId, JobKey, NodeName, Reconciliation
from tests.simulator.running import RunningSimulator, ended, held, running, running_simulator, until

SLEEPS = ("sleep", "600")
FAILS = ("sh", "-c", "exit 3")
FAILS_ONCE = ("sh", "-c", 'test "$SLURM_RESTART_COUNT" -gt 0 && exec sleep 600; exit 3')


@pytest.fixture
async def simulator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningSimulator]:
    async with running_simulator(tmp_path_factory.mktemp("sim")) as simulator:
        yield simulator


def order_for(record: JobRecord, *, action: Action = Action.RESTART_EXCLUDE, **changes: object) -> ActOrder:
    """Restart the job of `record` without the node it ran on."""
    now = datetime.now(UTC)
    restart = action is Action.RESTART_EXCLUDE
    advice: dict[str, object] = {
        "job": JobKey(cluster="sim", job_id=record.job_id, submitted_at=record.submitted_at),
        "attempt": record.restart_count,
        "generation": 1,
        "action": action,
        "exclude": record.nodes[:1] if restart else (),
        "reason": "the GPU has fallen off the bus",
        "rule": "culprit_named",
        "advised_at": now,
        "expires_at": now + timedelta(minutes=15),
    }
    of_order = {key: changes.pop(key) for key in list(changes) if key in ActOrder.model_fields}
    return ActOrder.model_validate(
        {"advice": Advice.model_validate(advice | changes), "submitted_at": record.submitted_at} | of_order
    )


async def carry_out(
    simulator: RunningSimulator, order: ActOrder, *, number: int = 1, scheduler: SimulatedScheduler | None = None
) -> Reconciliation:
    """One try of the activity."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=number)
    acts = SchedulerActs(scheduler or simulator.scheduler, settle_s=0.02)
    return await environment.run(acts.carry_out, order)


async def until_settled(simulator: RunningSimulator, order: ActOrder, *, tries: int = 200) -> Reconciliation:
    """Try as Temporal does, until there is a result."""
    hasty = SimulatedScheduler(simulator.socket, timeout_s=0.3)
    for number in range(1, tries):
        try:
            return await carry_out(simulator, order, number=number, scheduler=hasty)
        except ApplicationError as error:
            assert error.type == "SchedulerUnavailable"  # noqa: PT017
    pytest.fail("the order did not come to its end")


async def submitted(simulator: RunningSimulator, argv: Sequence[str] = SLEEPS, **spec: object) -> JobRecord:
    """A job that runs, or has failed."""
    job_id = await simulator.cluster.submit(JobSpec.model_validate({"argv": argv, "nodes": 2} | spec))
    return await until(simulator, job_id, running if argv == SLEEPS else ended)


class Recorded(SimulatedScheduler):
    """Remembers the verbs that were called, in their order."""

    def __init__(self, simulator: RunningSimulator) -> None:
        super().__init__(simulator.socket)
        self.verbs: list[str] = []

    async def requeue_hold(self, job_id: JobId) -> None:
        self.verbs.append("requeue_hold")
        await super().requeue_hold(job_id)

    async def requeue(self, job_id: JobId) -> None:
        self.verbs.append("requeue")
        await super().requeue(job_id)

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        mark = read_marker(admin_comment or "")
        what = [
            "exclude" if exclude is not None else "",
            "mark" if isinstance(mark, Marker) else "",
            "unmark" if isinstance(mark, Account) else "",
        ]
        self.verbs.append(" and ".join(word for word in what if word))
        await super().constrain(job_id, exclude=exclude, admin_comment=admin_comment)

    async def release(self, job_id: JobId) -> None:
        self.verbs.append("release")
        await super().release(job_id)

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        unmarks = isinstance(read_marker(admin_comment or ""), Account)
        self.verbs.append("start_now and unmark" if unmarks else "start_now")
        await super().start_now(job_id, admin_comment=admin_comment)

    async def allow_requeue(self, job_id: JobId) -> None:
        self.verbs.append("allow_requeue")
        await super().allow_requeue(job_id)

    async def cancel(self, job_id: JobId) -> None:
        self.verbs.append("cancel")
        await super().cancel(job_id)


async def test_a_running_job_is_marked_held_constrained_released_started_and_unmarked(
    simulator: RunningSimulator,
) -> None:
    before = await submitted(simulator, exclude=("node08",))
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=recorded)

    assert (seen.disposition, seen.reason) == (Disposition.CONVERGED, "desired_state_observed")
    assert recorded.verbs == ["mark", "requeue_hold", "exclude", "release", "start_now and unmark"]
    after = await until(simulator, before.job_id, running)
    assert after.restart_count == seen.restart_count == 1
    assert set(after.excluded_nodes) == set(seen.excluded) == {"node01", "node08"}
    assert not set(after.nodes) & {"node01", "node08"}
    assert read_marker(after.admin_comment) == Account(
        did=order_for(before).advice.key, why="the GPU has fallen off the bus"
    )


async def test_a_failed_job_is_requeued_without_a_hold_and_marked_at_once(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, FAILS_ONCE)
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=recorded)

    assert seen.reason == "desired_state_observed"
    assert recorded.verbs == ["requeue", "exclude and mark", "start_now and unmark"]


@pytest.mark.parametrize(("clear_delay", "then"), [(True, "start_now and unmark"), (False, "unmark")])
async def test_a_failed_job_that_is_to_avoid_nothing_is_requeued_and_let_go_in_two_calls(
    simulator: RunningSimulator, *, clear_delay: bool, then: str
) -> None:
    before = await submitted(simulator, FAILS_ONCE)
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before, exclude=(), clear_delay=clear_delay), scheduler=recorded)

    assert (seen.reason, seen.restart_count) == ("desired_state_observed", 1)
    assert recorded.verbs == ["requeue", then]
    assert isinstance(read_marker((await simulator.scheduler.job(before.job_id)).admin_comment), Account)


async def test_the_delay_stays_where_the_cause_needs_time(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before, clear_delay=False), scheduler=recorded)

    assert not any("start_now" in verb for verb in recorded.verbs)
    assert seen.eligible_at is not None
    assert seen.eligible_at > seen.observed_at + timedelta(seconds=60)


async def test_what_the_site_keeps_in_the_admin_comment_is_there_afterwards(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    await simulator.scheduler.constrain(before.job_id, admin_comment='{"billing": ["a", 1]}')

    await carry_out(simulator, order_for(before))

    after = await simulator.scheduler.job(before.job_id)
    assert after.admin_comment.startswith('{"billing":["a",1],"relight":{"did":')


async def test_nodes_that_were_excluded_by_us_before_are_withdrawn_and_the_users_stay(
    simulator: RunningSimulator,
) -> None:
    before = await submitted(simulator, exclude=("node07", "node08"))

    seen = await carry_out(simulator, order_for(before, withdraw=("node07",)))

    assert set(seen.excluded) == {"node01", "node08"}


async def test_an_order_that_is_carried_out_twice_requeues_once(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    order = order_for(before)
    await carry_out(simulator, order)
    await until(simulator, before.job_id, running)
    again = Recorded(simulator)

    seen = await carry_out(simulator, order, number=2, scheduler=again)

    assert (seen.disposition, seen.restart_count, again.verbs) == (Disposition.CONVERGED, 1, [])


async def test_a_job_that_its_owner_cancelled_stays_cancelled(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    await simulator.cluster.cancel(before.job_id, by="alice")
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=recorded)

    assert (seen.disposition, seen.reason, recorded.verbs) == (Disposition.ABANDONED, "owner_cancelled", [])
    assert (await simulator.scheduler.job(before.job_id)).cancelled_by == "alice"


@pytest.mark.parametrize("argv", [SLEEPS, ("sh", "-c", "sleep 1; exit 3")])
async def test_a_job_that_a_person_holds_while_it_runs_is_not_requeued(
    simulator: RunningSimulator, argv: tuple[str, ...]
) -> None:
    job_id = await simulator.cluster.submit(JobSpec(argv=argv))
    before = await until(simulator, job_id, running)
    await simulator.cluster.hold(job_id)
    if argv != SLEEPS:
        await until(simulator, job_id, ended)
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=recorded)

    assert (seen.disposition, seen.reason, recorded.verbs) == (Disposition.ABANDONED, "person_intervened", [])


async def test_a_no_requeue_job_is_allowed_first_where_the_operator_says_so(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, requeueable=False)

    refused = await carry_out(simulator, order_for(before))
    allowed = await carry_out(simulator, order_for(before, override_no_requeue=True))

    assert (refused.disposition, refused.reason) == (Disposition.ABANDONED, "not_requeueable")
    assert (allowed.disposition, allowed.restart_count) == (Disposition.CONVERGED, 1)


async def test_a_job_that_is_gone_is_told_so(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    order = order_for(before.model_copy(update={"job_id": "999"}))

    assert (await carry_out(simulator, order)).reason == "job_gone"


async def test_a_stop_cancels_and_is_done_once_the_job_has_ended(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before, action=Action.STOP), scheduler=recorded)

    assert (seen.disposition, seen.reason) == (Disposition.CONVERGED, "desired_state_observed")
    assert recorded.verbs == ["cancel"]
    assert (await simulator.scheduler.job(before.job_id)).state is JobState.CANCELLED


async def test_a_node_that_slurm_does_not_know_keeps_no_job_held_and_costs_no_other_exclusion(
    simulator: RunningSimulator,
) -> None:
    before = await submitted(simulator, FAILS)

    seen = await carry_out(simulator, order_for(before, exclude=("node01", "gpu-node-17.example")))

    assert seen.disposition is Disposition.CONVERGED
    assert seen.detail == "the scheduler refused to exclude gpu-node-17.example"
    assert seen.excluded == ("node01",)
    assert (await simulator.scheduler.job(before.job_id)).hold is Hold.NONE


class RefusesLists(SimulatedScheduler):
    """Takes no exclusion list, for a reason of its own."""

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        await super().constrain(job_id, exclude=("node99",) if exclude else exclude, admin_comment=admin_comment)


async def test_a_list_that_slurm_refuses_for_another_reason_keeps_no_job_held(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, FAILS, exclude=("node08",))

    seen = await carry_out(simulator, order_for(before), scheduler=RefusesLists(simulator.socket))

    assert (seen.disposition, seen.excluded) == (Disposition.CONVERGED, ("node08",))
    assert seen.detail == f"the scheduler refused to exclude {before.nodes[0]}"


class EmptiesNoList(SimulatedScheduler):
    """Takes no empty exclusion list, as pyslurm."""

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        if exclude == ():
            raise Refused("an update takes no empty value")
        await super().constrain(job_id, exclude=exclude, admin_comment=admin_comment)


async def test_an_exclusion_that_cannot_be_withdrawn_keeps_no_job_held(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, FAILS, exclude=("node08",))
    order = order_for(before, exclude=(), withdraw=("node08",))

    seen = await carry_out(simulator, order, scheduler=EmptiesNoList(simulator.socket))

    assert (seen.disposition, seen.excluded) == (Disposition.CONVERGED, ("node08",))
    assert (await simulator.scheduler.job(before.job_id)).hold is Hold.NONE


class MayNot(SimulatedScheduler):
    """The account may read and requeue, and nothing else."""

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        raise NotPermitted("Access/permission denied")


async def test_without_the_right_to_mark_nothing_is_done(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=MayNot(simulator.socket))

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "not_permitted")
    assert (await simulator.scheduler.job(before.job_id)).restart_count == 0


class MayNotAnyMore(SimulatedScheduler):
    """The account loses its rights once it holds the job."""

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        if (await self.job(job_id)).restart_count:
            raise NotPermitted("Access/permission denied")
        await super().constrain(job_id, exclude=exclude, admin_comment=admin_comment)


async def test_a_job_that_we_hold_is_not_given_up_when_a_right_is_taken_away(
    simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await submitted(simulator)
    monkeypatch.setattr("activities.scheduler.requeue.MAX_STEPS", 60)
    monkeypatch.setattr("activities.scheduler.requeue.MAX_PAUSE_S", 0.1)
    with pytest.raises(ApplicationError, match="did not come to rest in 60 steps; Access/permission denied") as raised:
        await carry_out(simulator, order_for(before), scheduler=MayNotAnyMore(simulator.socket))
    assert raised.value.type == "NotSettled"
    assert held(await simulator.scheduler.job(before.job_id))

    seen = await carry_out(simulator, order_for(before), number=2)
    assert (seen.disposition, seen.restart_count) == (Disposition.CONVERGED, 1)


async def test_an_ended_job_that_may_be_requeued_and_not_changed_is_left_unheld(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, FAILS)

    seen = await carry_out(simulator, order_for(before), scheduler=MayNot(simulator.socket))

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "not_permitted")
    after = await simulator.scheduler.job(before.job_id)
    assert (after.state, after.hold, after.restart_count) == (JobState.PENDING, Hold.NONE, 1)


class Unreadable(SimulatedScheduler):
    """Refuses the first reads, as a controller does that has lost its credentials for a moment."""

    refusals = 3

    async def job(self, job_id: JobId) -> JobRecord:
        self.refusals -= 1
        if self.refusals >= 0:
            raise NotPermitted("Access/permission denied")
        return await super().job(job_id)


async def test_a_read_that_is_refused_gives_nothing_up(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=Unreadable(simulator.socket))

    assert seen.disposition is Disposition.CONVERGED


class FastClock(Recorded):
    """A controller whose clock is far ahead of ours: a cleared delay still looks like one."""

    async def job(self, job_id: JobId) -> JobRecord:
        record = await super().job(job_id)
        ahead = record.eligible_at and record.eligible_at + timedelta(hours=1)
        return record.model_copy(update={"eligible_at": ahead})


async def test_a_clock_that_is_ahead_of_ours_does_not_keep_us_busy(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, FAILS, nodes=1)
    await submitted(simulator, nodes=8)
    recorded = FastClock(simulator)

    seen = await carry_out(simulator, order_for(before, exclude=()), scheduler=recorded)

    assert seen.disposition is Disposition.CONVERGED
    assert recorded.verbs.count("start_now and unmark") == 1
    assert (await simulator.scheduler.job(before.job_id)).state is JobState.PENDING


async def test_no_answer_is_for_temporal_to_try_again(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    await simulator.cluster.inject(seed=1, rates={Fault.LOSE_REQUEST: 1.0})

    with pytest.raises(ApplicationError) as raised:
        await carry_out(simulator, order_for(before))

    assert raised.value.type == "SchedulerUnavailable"
    assert not raised.value.non_retryable


@pytest.mark.parametrize("argv", [SLEEPS, FAILS], ids=["runs", "failed"])
async def test_whatever_calls_are_lost_late_or_doubled_there_is_one_requeue_and_no_hold(
    simulator: RunningSimulator, argv: tuple[str, ...]
) -> None:
    records = [await submitted(simulator, argv, nodes=1, exclude=("node08",)) for _ in range(6)]
    rates = {Fault.LOSE_REQUEST: 0.15, Fault.LOSE_ANSWER: 0.15, Fault.DUPLICATE: 0.15, Fault.DELAY_ANSWER: 0.05}
    for seed, before in enumerate(records):
        await simulator.cluster.inject(seed=seed, rates=rates, delay_s=0.5)
        seen = await until_settled(simulator, order_for(before))
        await simulator.cluster.inject(seed=seed, rates={})

        assert (seen.disposition, seen.restart_count) == (Disposition.CONVERGED, 1)
        after = await until(simulator, before.job_id, lambda job: running(job) or ended(job))
        assert after.restart_count == 1
        assert set(after.excluded_nodes) == {before.nodes[0], "node08"}
        assert ended(after) or not isinstance(read_marker(after.admin_comment), Marker)


class CutOff(SimulatedScheduler):
    """Its worker dies right after the requeue of an ended job."""

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        raise SchedulerUnavailable("Socket timed out on send/recv operation")


async def test_a_requeue_that_was_cut_off_is_constrained_by_the_next_try_while_slurms_delay_lasts(
    simulator: RunningSimulator,
) -> None:
    before = await submitted(simulator, FAILS_ONCE)
    with pytest.raises(ApplicationError):
        await carry_out(simulator, order_for(before), scheduler=CutOff(simulator.socket))
    waits = await simulator.scheduler.job(before.job_id)
    assert (waits.state, waits.hold, waits.admin_comment) == (JobState.PENDING, Hold.NONE, "")
    recorded = Recorded(simulator)

    seen = await carry_out(simulator, order_for(before), number=2, scheduler=recorded)

    assert (seen.reason, seen.restart_count) == ("desired_state_observed", 1)
    assert recorded.verbs == ["exclude and mark", "start_now and unmark"]
    assert before.nodes[0] not in (await until(simulator, before.job_id, running)).nodes


async def test_a_requeue_that_stays_cut_off_starts_by_itself_and_what_is_missing_is_told(
    simulator: RunningSimulator,
) -> None:
    before = await submitted(simulator, FAILS_ONCE)
    with pytest.raises(ApplicationError):
        await carry_out(simulator, order_for(before), scheduler=CutOff(simulator.socket))
    await simulator.scheduler.start_now(before.job_id)
    await until(simulator, before.job_id, running)

    seen = await carry_out(simulator, order_for(before), number=2)

    assert (seen.disposition, seen.reason) == (Disposition.CONVERGED, "already_satisfied")
    assert seen.detail == f"the next attempt started before {before.nodes[0]} could be excluded"


class WipesTheMark(SimulatedScheduler):
    """A site whose epilog writes its own report over AdminComment."""

    async def requeue_hold(self, job_id: JobId) -> None:
        await super().requeue_hold(job_id)
        await self.constrain(job_id, admin_comment="used 3 of 4 GPUs")


async def test_a_mark_that_a_sites_epilog_wrote_over_is_set_again_and_the_hold_released(
    simulator: RunningSimulator,
) -> None:
    before = await submitted(simulator)

    seen = await carry_out(simulator, order_for(before), scheduler=WipesTheMark(simulator.socket))

    assert (seen.disposition, seen.reason) == (Disposition.CONVERGED, "desired_state_observed")
    after = await simulator.scheduler.job(before.job_id)
    assert after.hold is Hold.NONE
    assert "used 3 of 4 GPUs" in after.admin_comment


async def test_a_job_that_writes_a_checkpoint_is_ended_only_when_its_time_is_over(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    begun = asyncio.create_task(carry_out(simulator, order_for(before, spare_s=2.0)))
    marked = await until(simulator, before.job_id, lambda job: isinstance(read_marker(job.admin_comment), Marker))

    assert running(marked)
    seen = await begun

    assert (seen.reason, seen.restart_count) == ("desired_state_observed", 1)
    mark = read_marker(marked.admin_comment)
    assert isinstance(mark, Marker)
    assert seen.submitted_at is not None
    assert seen.submitted_at >= mark.since.replace(microsecond=0) + timedelta(seconds=2)


async def test_a_job_that_completes_while_its_checkpoint_is_spared_is_left_completed(
    simulator: RunningSimulator,
) -> None:
    job_id = await simulator.cluster.submit(JobSpec(argv=("sleep", "2")))
    before = await until(simulator, job_id, running)

    seen = await carry_out(simulator, order_for(before, spare_s=60.0))

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "completed")


class SlowToUnmark(SimulatedScheduler):
    """Clears a mark only when the next attempt, for which Slurm's delay is short, has ended already: Slurm takes it no
    more."""

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        if isinstance(read_marker(admin_comment or ""), Account):
            await self.start_now(job_id)
            while not ended(await self.job(job_id)):
                await asyncio.sleep(0.05)
        await super().constrain(job_id, exclude=exclude, admin_comment=admin_comment)


async def test_the_mark_of_an_attempt_that_failed_at_once_does_not_keep_the_job_from_its_next_restart(
    simulator: RunningSimulator,
) -> None:
    first = await submitted(simulator, FAILS)
    order = order_for(first, clear_delay=False)
    assert (await carry_out(simulator, order, scheduler=SlowToUnmark(simulator.socket))).restart_count == 1
    second = await until(simulator, first.job_id, ended)
    assert isinstance(read_marker(second.admin_comment), Marker)

    seen = await carry_out(simulator, order_for(second, generation=2, job=order.advice.job))

    assert (seen.disposition, seen.restart_count) == (Disposition.CONVERGED, 2)
    assert (await simulator.scheduler.job(first.job_id)).hold is Hold.NONE


async def test_a_person_who_holds_the_job_in_between_keeps_it(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    order = order_for(before)
    await simulator.scheduler.constrain(
        before.job_id, admin_comment=write_marker("", Marker(holds=order.advice.key, since=datetime.now(UTC)))
    )
    await simulator.scheduler.requeue_hold(before.job_id)
    await until(simulator, before.job_id, held)
    await simulator.cluster.hold(before.job_id, admin=True)

    seen = await carry_out(simulator, order, number=2)

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "person_intervened")
    after = await simulator.scheduler.job(before.job_id)
    assert after.hold is Hold.ADMIN
    assert not isinstance(read_marker(after.admin_comment), Marker)


class NodesUnknown(SimulatedScheduler):
    """Answers everything but the question for its nodes."""

    async def nodes(self) -> tuple[NodeRecord, ...]:
        raise SchedulerUnavailable("Socket timed out on send/recv operation")


async def test_where_the_nodes_cannot_be_read_the_refused_list_is_tried_again(simulator: RunningSimulator) -> None:
    before = await submitted(simulator, FAILS)
    order = order_for(before, exclude=("node99",))
    with pytest.raises(ApplicationError, match="Socket timed out"):
        await carry_out(simulator, order, scheduler=NodesUnknown(simulator.socket))

    assert (await carry_out(simulator, order, number=2)).disposition is Disposition.CONVERGED
