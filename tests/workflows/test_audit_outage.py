"""The audit trail: first on record, then done; and a trail that is away holds nothing up and loses nothing."""

from __future__ import annotations

from datetime import timedelta

from recovery.audit import AuditKind
from recovery.model import Mode
from recovery.optin import OptIn
from tests.workflows import parts
from tests.workflows.stage import Stage, eventually
from workflows.ledger import BEFORE_ACT_GRACE


async def test_an_act_comes_after_the_advice_and_the_order_are_stored(stage: Stage) -> None:
    stage.trail.takes(0.3)
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    before = stage.program[: stage.program.index("act:restart")]
    stored = [word for word in before if word.startswith("audit:")]
    assert stored == ["audit:adopted", "audit:detected", "audit:attributed", "audit:advised", "audit:ordered"]
    assert before.index("attribute") < before.index("decide") < before.index("audit:advised")


async def test_all_from_the_failure_to_the_order_is_one_delivery(stage: Stage) -> None:
    stage.governor.takes(0.2)
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    batches = [[event.kind for event in batch] for batch in stage.deliveries]
    assert [AuditKind.DETECTED, AuditKind.ATTRIBUTED, AuditKind.ADVISED, AuditKind.ORDERED] in batches


async def test_each_event_is_told_once_and_in_order(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.allocated(), parts.resumed(), parts.completed())

    await job.report()

    events = [event for batch in stage.deliveries for event in batch]
    numbers = [int(event.key.rpartition("/")[2]) for event in events]
    assert numbers == list(range(1, len(events) + 1))
    assert len({event.key.rpartition("/")[0] for event in events}) == 1
    assert [event.kind for event in events] == [
        AuditKind.ADOPTED,
        AuditKind.DETECTED,
        AuditKind.ATTRIBUTED,
        AuditKind.ADVISED,
        AuditKind.ORDERED,
        AuditKind.RECONCILED,
        AuditKind.MILESTONE,
        AuditKind.MILESTONE,
        AuditKind.MILESTONE,
        AuditKind.CLOSED,
    ]
    assert [event.attempt for event in events] == [0] * 6 + [1] * 4


async def test_events_carry_what_they_tell_of(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    by_kind = {event.kind: event for event in stage.audit}
    assert by_kind[AuditKind.DETECTED].symptom is not None
    assert by_kind[AuditKind.ATTRIBUTED].verdict == stage.verdict
    assert by_kind[AuditKind.ADVISED].advice == by_kind[AuditKind.ORDERED].advice == stage.orders[0].advice
    assert by_kind[AuditKind.RECONCILED].reconciliation is not None
    assert all(event.job == job.key and event.mode is Mode.ACT for event in stage.audit)


async def test_recovery_goes_on_without_the_trail_and_all_events_arrive_later(stage: Stage) -> None:
    stage.trail.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.allocated(), parts.resumed(), parts.completed())

    closed = await job.until(lambda state: bool(state.closed))
    assert [order.advice.attempt for order in stage.orders] == [0]
    assert stage.deliveries == []
    assert (await job.handle.describe()).close_time is None
    stage.trail.is_over()
    await job.report()

    events = [event for batch in stage.deliveries for event in batch]
    assert [int(event.key.rpartition("/")[2]) for event in events] == list(range(1, len(events) + 1))
    assert len(events) == closed.audit_count
    advised, acted = (
        next(milestone.at for milestone in closed.milestones if milestone.kind.value == kind)
        for kind in ("advised", "acted")
    )
    assert BEFORE_ACT_GRACE <= acted - advised < BEFORE_ACT_GRACE + timedelta(seconds=2)


async def test_a_delivery_whose_answer_was_lost_is_repeated_under_the_same_keys(stage: Stage) -> None:
    stage.lose_answers(2)
    job = await stage.adopt()
    stage.reports(parts.completed())

    await job.report()

    assert len(stage.deliveries) >= 3
    assert stage.deliveries[0] == stage.deliveries[1] == stage.deliveries[2]
    assert [event.kind for event in stage.audit] == [AuditKind.ADOPTED, AuditKind.MILESTONE, AuditKind.CLOSED]


async def test_an_opt_in_that_can_not_be_read_is_warned_of_once_and_only_observed(stage: Stage) -> None:
    job = await stage.adopt(optin=OptIn(warning="the comment is no JSON: observing"))
    stage.reports(parts.ended(exit_code=1), parts.gone())

    await job.report()

    assert stage.told(AuditKind.WARNED) == ["the comment is no JSON: observing"]
    assert stage.orders == []


async def test_training_that_resumes_before_its_checkpoint_is_warned_of(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1, checkpoint=100), parts.allocated(), parts.resumed(1), parts.completed())

    await job.report()

    assert stage.told(AuditKind.WARNED) == ["training resumed at iteration 1, before the checkpoint of iteration 100"]


async def test_an_allocation_that_contains_an_excluded_node_is_warned_of(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: bool(stage.orders))
    stage.reports(parts.allocated(("node02", "node05")), parts.completed())

    await job.report()

    assert stage.told(AuditKind.WARNED) == ["the new allocation contains the excluded node02"]


async def test_an_allocation_whose_nodes_can_not_be_read_is_reported_once(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.allocated(()), parts.completed())

    await job.report()

    assert [watch.allocated for watch in stage.watches[1:]] == [False, True]
