"""How a job's guard ends, and what never calls for an act."""

from __future__ import annotations

import pytest

from activities.scheduler.protocol import JobState
from recovery.audit import AuditKind
from recovery.model import Action
from tests.workflows import parts
from tests.workflows.stage import Stage, eventually
from workflows.visibility import BLIND_SINCE


async def test_a_healthy_job_completes_without_any_assessment(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.completed())

    report = await job.report()

    assert report.closed == "completed"
    assert (stage.attributed, stage.situations, stage.orders) == ([], [], [])
    assert stage.told(AuditKind.CLOSED) == ["completed"]


async def test_a_job_that_its_owner_cancelled_is_never_touched(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(JobState.CANCELLED, cancelled_by="ana"))

    report = await job.report()

    assert report.closed == "cancelled by ana: never touched"
    assert (stage.attributed, stage.orders) == ([], [])


async def test_a_job_that_is_gone_ends_the_guard(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.gone())

    report = await job.report()

    assert report.closed == "gone: the scheduler does not know the job any more"
    assert stage.orders == []


@pytest.mark.parametrize("reason", ["job_gone", "owner_cancelled", "completed"])
async def test_an_act_that_finds_nothing_left_to_look_after_ends_the_guard(stage: Stage, reason: str) -> None:
    job = await stage.adopt()
    stage.outcomes = [parts.abandoned(reason)]
    stage.reports(parts.ended(exit_code=1))

    report = await job.report()

    assert report.closed == f"{reason.replace('_', ' ')}: nothing left to look after"
    assert len(stage.orders) == 1


@pytest.mark.parametrize("reason", ["advice_expired", "not_requeueable", "not_permitted", "person_intervened"])
async def test_an_act_that_was_given_up_leaves_the_job_watched(stage: Stage, reason: str) -> None:
    job = await stage.adopt()
    stage.outcomes = [parts.abandoned(reason)]
    stage.reports(parts.ended(exit_code=1), parts.gone())

    report = await job.report()

    assert report.attempt == 0
    assert stage.watches[-1].ended
    assert len(stage.orders) == 1


async def test_a_stop_that_finds_a_newer_attempt_goes_on_guarding_that_one(stage: Stage) -> None:
    job = await stage.adopt()
    stage.outcomes = [parts.abandoned("superseded", ahead=1)]
    stage.reports(parts.ended(exit_code=93), parts.completed())

    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert report.closed == "completed"
    assert stage.watches[-1].attempt == 1


async def test_the_programs_wish_not_to_be_requeued_stops_the_job(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=93))

    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert report.closed == "stopped by policy: the program ended with exit code 93: do not requeue"


async def test_a_user_error_that_comes_back_is_retried_once_and_then_stopped(stage: Stage) -> None:
    stage.verdict = parts.user_error()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.ended(exit_code=1))

    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.RESTART, Action.STOP]
    assert report.closed.startswith("stopped by policy")


async def test_blindness_is_told_and_never_a_reason_to_act(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.blind(), parts.sighted(), parts.completed())

    await job.report()

    assert stage.told(AuditKind.BLIND) == ["blind: the log is missing", "in sight again"]
    assert [watch.blind_since is not None for watch in stage.watches] == [False, True, False]
    assert (await job.handle.describe()).typed_search_attributes[BLIND_SINCE] == "", "it is in sight at its end"
    assert (stage.attributed, stage.orders) == ([], [])


async def test_a_job_that_cannot_be_seen_is_found_by_since_when(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.blind())

    state = await job.until(lambda state: state.blind_since is not None)
    await eventually(lambda: len(stage.watches) == 2)

    assert state.blind_since is not None
    since = (await job.handle.describe()).typed_search_attributes[BLIND_SINCE]
    assert since == f"{state.blind_since:%Y-%m-%dT%H:%M:%SZ}"


async def test_lost_lines_are_counted_and_told_and_never_a_reason_to_act(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.lines_lost(3))

    state = await job.until(lambda state: state.lost_lines == 3)
    await eventually(lambda: len(stage.watches) == 2)

    assert "3 lines of this attempt were lost on their way" in [entry.text for entry in state.timeline]
    assert [watch.lost_lines for watch in stage.watches] == [0, 3]
    assert (stage.attributed, stage.orders) == ([], [])


async def test_a_word_that_was_accepted_but_came_too_late_is_on_record(stage: Stage) -> None:
    job = await stage.adopt()
    stage.act.is_silent()
    stage.outcomes = [parts.abandoned("job_gone")]
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: len(stage.orders) == 1)
    await job.says("pause", parts.by("ana", "let me look"))
    stage.act.is_over()

    await job.report()

    assert stage.told(AuditKind.OVERRIDE) == ["pause: let me look; too late, the guard has ended"]
