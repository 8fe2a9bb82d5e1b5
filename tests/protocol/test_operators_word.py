"""The operator's settings and the job's own comment lock every act a second time, whatever a workflow has heard."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from temporalio.testing import ActivityEnvironment

from activities.scheduler.marker import Marker, read_marker, write_marker
from activities.scheduler.protocol import JobState
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.simulated import SimulatedScheduler
from activities.scheduler.steps import ActOrder
from recovery.model import Action, Disposition, Reconciliation
from tests.protocol.test_carry_out import Recorded, order_for, simulator, submitted
from tests.simulator.running import RunningSimulator, running, until

__all__ = ["simulator"]


@pytest.mark.parametrize("action", [Action.RESTART_EXCLUDE, Action.STOP])
async def test_nothing_is_done_where_the_operator_went_back_to_observe(
    simulator: RunningSimulator, action: Action
) -> None:
    before = await submitted(simulator)
    recorded = Recorded(simulator)
    acts = SchedulerActs(recorded, may_act_in=lambda partition: partition != before.partition, settle_s=0.02)

    seen = await ActivityEnvironment().run(acts.carry_out, order_for(before, action=action))

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "mode_observe")
    assert recorded.verbs == []


@pytest.mark.parametrize("action", [Action.RESTART_EXCLUDE, Action.STOP])
async def test_that_an_earlier_try_had_no_answer_does_not_lift_the_lock(
    simulator: RunningSimulator, action: Action
) -> None:
    before = await submitted(simulator)
    recorded = Recorded(simulator)

    seen = await second_try(recorded, order_for(before, action=action))

    assert (seen.reason, recorded.verbs) == ("mode_observe", [])


async def test_the_exclusions_of_a_job_that_others_requeued_are_left_too(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    await simulator.cluster.requeue(before.job_id)
    await until(simulator, before.job_id, lambda job: job.state is JobState.PENDING and not job.flags)

    seen = await second_try(simulator.scheduler, order_for(before))

    assert (seen.reason, seen.restart_count) == ("mode_observe", 0)


async def test_a_job_that_we_hold_is_released_all_the_same(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    order = order_for(before)
    mark = write_marker("", Marker(holds=order.advice.key, since=datetime.now(UTC)))
    await simulator.scheduler.constrain(before.job_id, admin_comment=mark)
    await simulator.scheduler.requeue_hold(before.job_id)

    seen = await second_try(simulator.scheduler, order)

    assert seen.disposition is Disposition.CONVERGED
    assert (await until(simulator, before.job_id, running)).restart_count == 1


async def test_a_job_that_was_only_marked_is_left_without_a_mark(simulator: RunningSimulator) -> None:
    before = await submitted(simulator)
    order = order_for(before)
    mark = write_marker("site note", Marker(holds=order.advice.key, since=datetime.now(UTC)))
    await simulator.scheduler.constrain(before.job_id, admin_comment=mark)

    seen = await second_try(simulator.scheduler, order)

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "mode_observe")
    after = await simulator.scheduler.job(before.job_id)
    assert (after.state, after.restart_count) == (JobState.RUNNING, 0)
    assert not isinstance(read_marker(after.admin_comment), Marker)
    assert "site note" in after.admin_comment


@pytest.mark.parametrize("comment", ["", '{"relight":{"mode":"observe"}}', '{"relight":{"mode":"act"}', "my best run"])
async def test_nothing_is_done_to_a_job_whose_owner_took_the_word_back(
    simulator: RunningSimulator, comment: str
) -> None:
    before = await submitted(simulator, comment=comment)
    recorded = Recorded(simulator)
    acts = SchedulerActs(recorded, settle_s=0.02)

    seen = await ActivityEnvironment().run(acts.carry_out, order_for(before, by_its_comment=True))

    assert (seen.disposition, seen.reason, recorded.verbs) == (Disposition.ABANDONED, "mode_observe", [])
    assert "comment does not ask for acts" in seen.detail


@pytest.mark.parametrize(("comment", "by_its_comment"), [('{"relight":{"mode":"act"}}', True), ("", False)])
async def test_what_the_comment_still_asks_for_is_done_and_what_a_person_ordered_needs_none(
    simulator: RunningSimulator, comment: str, by_its_comment: bool
) -> None:
    before = await submitted(simulator, comment=comment)
    acts = SchedulerActs(simulator.scheduler, settle_s=0.02)

    seen = await ActivityEnvironment().run(acts.carry_out, order_for(before, by_its_comment=by_its_comment))

    assert seen.disposition is Disposition.CONVERGED


async def second_try(scheduler: SimulatedScheduler, order: ActOrder) -> Reconciliation:
    """Try again on a worker whose settings say observe."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=2)
    acts = SchedulerActs(scheduler, may_act_in=lambda _: False, settle_s=0.02)
    return await environment.run(acts.carry_out, order)
