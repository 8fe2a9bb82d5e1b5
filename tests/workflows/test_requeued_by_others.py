"""Slurm requeues by itself after NODE_FAIL, and people requeue by hand: a job must not be requeued twice."""

from __future__ import annotations

from recovery.audit import AuditKind
from recovery.model import MilestoneKind
from tests.workflows import parts
from tests.workflows.stage import Stage


async def test_a_requeue_by_slurm_itself_is_never_followed_by_one_of_ours(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.requeued(), parts.allocated(), parts.resumed(), parts.completed())

    report = await job.report()

    assert stage.orders == []
    assert report.attempt == 1
    assert [watch.attempt for watch in stage.watches] == [0, 1, 1, 1]
    assert stage.watches[1].submitted_at == parts.submitted_at(1)
    assert MilestoneKind.RESUMED in [milestone.kind for milestone in report.milestones]


async def test_a_named_culprit_is_kept_from_the_attempt_that_slurm_has_queued_already(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.requeued(), parts.completed())

    report = await job.report()

    [order] = stage.orders
    # The order is for the attempt that failed: the protocol finds a newer one there and only sets the exclusions.
    assert order.advice.attempt == 0
    assert order.advice.exclude == ("node02",)
    assert order.submitted_at == parts.submitted_at(0)
    assert report.attempt == 1


async def test_observe_leaves_the_attempt_that_slurm_has_queued_as_it_is(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(parts.OBSERVE)
    stage.reports(parts.requeued(), parts.completed())

    report = await job.report()

    assert stage.orders == []
    assert report.attempt == 1
    assert "mode observe: nothing is carried out" in stage.told(AuditKind.ADVISED)


async def test_a_persons_requeue_after_an_advice_that_was_not_followed_begins_the_next_attempt(stage: Stage) -> None:
    job = await stage.adopt(parts.OBSERVE)
    stage.reports(parts.ended(exit_code=1), parts.requeued(), parts.completed())

    report = await job.report()

    assert [watch.ended for watch in stage.watches] == [False, True, False]
    assert report.attempt == 1
    assert stage.orders == []
