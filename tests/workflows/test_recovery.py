"""A failure's way through a job's workflow, from the watch's report to training going on."""

from __future__ import annotations

from recovery.model import Action, MilestoneKind
from tests.workflows import parts
from tests.workflows.stage import Stage
from workflows.state import KEPT_ATTEMPTS


async def test_each_attempt_is_known_to_the_act_by_its_own_submit_time(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1, checkpoint=1), parts.ended(exit_code=1, checkpoint=2), parts.completed())

    await job.report()

    assert [(order.advice.attempt, order.submitted_at) for order in stage.orders] == [
        (0, parts.submitted_at(0)),
        (1, parts.submitted_at(1)),
    ]
    assert [past.checkpoint for past in stage.situations[1].past] == [1]


async def test_restarts_too_long_ago_to_be_remembered_in_full_are_still_counted(stage: Stage) -> None:
    job = await stage.adopt()
    failures = [parts.ended(exit_code=1, checkpoint=n) for n in range(1, KEPT_ATTEMPTS + 4)]
    stage.reports(*failures, parts.completed())

    await job.report()

    last = stage.situations[-1]
    assert (len(last.past), last.restarts) == (KEPT_ATTEMPTS, len(failures) - 1)


async def test_a_failed_attempt_is_restarted_without_its_bad_node_and_watched_until_it_completes(stage: Stage) -> None:
    job = await stage.adopt(parts.ACT)
    stage.verdict = parts.bad_node("node02")
    stage.reports(parts.ended(exit_code=1, checkpoint=100), parts.allocated(), parts.resumed(101), parts.completed())

    report = await job.report()

    [order] = stage.orders
    assert order.advice.action is Action.RESTART_EXCLUDE
    assert order.advice.exclude == ("node02",)
    assert (order.advice.attempt, order.submitted_at) == (0, parts.submitted_at(0))
    first, *later = stage.watches
    assert not first.report_start
    assert [(watch.attempt, watch.submitted_at) for watch in later] == [(1, parts.submitted_at(1))] * 3
    assert [(watch.report_start, watch.allocated) for watch in later] == [(True, False), (True, True), (False, True)]
    assert report.closed == "completed"
    assert report.attempt == 1
    assert [milestone.kind for milestone in report.milestones] == [
        MilestoneKind.ADOPTED,
        MilestoneKind.DETECTED,
        MilestoneKind.ATTRIBUTED,
        MilestoneKind.ADVISED,
        MilestoneKind.ACTED,
        MilestoneKind.ELIGIBLE,
        MilestoneKind.ALLOCATED,
        MilestoneKind.RESUMED,
        MilestoneKind.COMPLETED,
    ]
