"""Nothing waits for ever because of us: every step has a deadline, and a fallback behind it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.scheduler.protocol import JobState
from recovery.audit import AuditKind
from recovery.model import Action, Category, Disposition
from tests.workflows import parts
from tests.workflows.stage import Job, Stage, eventually
from workflows import advising, options

LONGEST = options.ATTRIBUTION_DEADLINE + options.DECISION_DEADLINE + timedelta(seconds=5)


async def _seconds_until_acted(stage: Stage, job: Job) -> float:
    """From the report of the failure to the act, by the workflow's own clock."""
    report = await job.report()
    at = {milestone.kind.value: milestone.at for milestone in report.milestones}
    return (at["acted"] - at["detected"]).total_seconds()


async def test_a_decision_is_made_without_a_verdict_when_attribution_fails(stage: Stage) -> None:
    stage.attribution.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    assert await _seconds_until_acted(stage, job) < LONGEST.total_seconds()

    [situation] = stage.situations
    assert (situation.verdict.category, situation.verdict.culprits) == (Category.UNKNOWN, ())
    assert (situation.ending.state, situation.ending.exit_code) == ("FAILED", 1)
    [order] = stage.orders
    assert (order.advice.action, order.advice.exclude) == (Action.RESTART, ())


async def test_a_plain_restart_goes_through_when_the_policy_fails_too(stage: Stage) -> None:
    stage.attribution.fails()
    stage.decision.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    assert await _seconds_until_acted(stage, job) < LONGEST.total_seconds()

    [order] = stage.orders
    assert (order.advice.action, order.advice.exclude, order.advice.rule) == (Action.RESTART, (), "fallback")


async def test_silence_of_attribution_and_policy_is_bounded_by_their_deadlines(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "ATTRIBUTION_DEADLINE", timedelta(seconds=0.5))
    monkeypatch.setattr(options, "DECISION_DEADLINE", timedelta(seconds=0.5))
    stage.attribution.is_silent()
    stage.decision.is_silent()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    assert await _seconds_until_acted(stage, job) < 3

    [order] = stage.orders
    assert (order.advice.action, order.advice.rule) == (Action.RESTART, "fallback")


def test_the_deadlines_leave_a_failed_job_waiting_for_less_than_a_minute() -> None:
    assert timedelta(minutes=1) > LONGEST


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.COMPLETED])
async def test_the_fallback_never_goes_against_an_end_that_was_wanted(stage: Stage, state: JobState) -> None:
    # The attempt that the watch saw failing is found cancelled or completed by the attribution.
    stage.decision.fails()
    stage.found_state = state.value
    job = await stage.adopt()
    stage.reports(parts.stalled(), parts.ended(state))

    await job.report()

    assert stage.orders == []


async def test_the_fallback_does_not_requeue_what_slurm_has_requeued_already(stage: Stage) -> None:
    stage.decision.fails()
    job = await stage.adopt()
    stage.reports(parts.requeued(), parts.completed())

    report = await job.report()

    assert stage.orders == []
    assert report.attempt == 1


async def test_the_fallback_keeps_the_exclusions_that_stand(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.attempt == 1)
    stage.decision.fails()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    _, fallback = stage.orders
    assert fallback.advice.rule == "fallback"
    assert fallback.withdraw == ()
    assert fallback.wanted_exclusions(("node02", "node09")) == ("node02", "node09")


async def test_an_act_is_repeated_until_the_scheduler_answers(stage: Stage) -> None:
    stage.act.fails(8)
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    report = await job.report()

    assert report.attempt == 1
    assert len({order.advice.key for order in stage.orders}) == 1
    assert len(stage.orders) == 9


async def test_an_act_without_any_answer_for_days_is_not_claimed_and_the_job_stays_guarded(stage: Stage) -> None:
    stage.act.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: bool(stage.orders))
    stage.act.gives_up()
    await job.until(lambda state: state.reconciliation is not None)
    stage.reports(parts.gone())

    report = await job.report()

    assert report.closed.startswith("gone")
    [event] = [event for event in stage.audit if event.kind is AuditKind.RECONCILED]
    assert event.reconciliation is not None
    assert event.reconciliation.disposition is Disposition.PENDING


async def test_a_trace_that_nobody_takes_does_not_harm_the_recovery(stage: Stage) -> None:
    stage.telemetry.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.allocated(), parts.resumed(), parts.completed())

    report = await job.report()

    assert report.closed == "completed"
    assert stage.traces == []


async def test_the_fallback_keeps_the_programs_wish_not_to_be_requeued(stage: Stage) -> None:
    stage.decision.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=93))

    await job.report()

    assert stage.orders == []


async def test_the_fallback_requeues_a_few_times_and_not_for_ever(stage: Stage) -> None:
    stage.decision.fails()
    job = await stage.adopt()
    stage.reports(*[parts.ended(exit_code=1)] * (advising.MAX_FALLBACKS + 1))

    report = await job.report()

    assert len(stage.orders) == advising.MAX_FALLBACKS
    assert "no further blind requeue" in report.closed
