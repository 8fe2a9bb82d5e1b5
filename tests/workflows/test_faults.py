"""A fatal line while the attempt runs: advice at once, an act only when the attempt has ended or stands still."""

from __future__ import annotations

from recovery.audit import AuditKind
from recovery.model import Action, MilestoneKind, SymptomKind
from tests.workflows import parts
from tests.workflows.stage import Stage, eventually


async def test_a_fatal_line_is_advised_on_at_once_and_acted_on_when_the_attempt_has_ended(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False))
    advised = await job.until(lambda state: state.advice is not None and state.phase.value == "watching")
    await eventually(lambda: len(stage.watches) == 2)
    assert stage.orders == []

    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: len(stage.orders) == 1)
    stage.reports(parts.completed())
    await job.report()

    [order] = stage.orders
    assert order.advice == advised.advice
    assert len(stage.attributed) == 1


async def test_a_fatal_line_without_progress_since_is_acted_on_while_the_attempt_runs(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False), parts.faulted(certain=True), parts.completed())

    await job.report()

    [order] = stage.orders
    assert order.advice.kill_first
    assert order.advice.exclude == ("node02",)


async def test_a_doubtful_verdict_on_a_fatal_line_is_made_again_when_the_attempt_has_ended(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False))
    await job.until(lambda state: state.advice is not None and state.phase.value == "watching")
    stage.verdict = parts.bad_node("node03")
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    [order] = stage.orders
    assert (order.advice.generation, order.advice.exclude) == (2, ("node03",))


async def test_a_survived_fatal_line_withdraws_the_advice_and_nothing_is_acted_on(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False), parts.survived(), parts.completed())

    await job.report()

    assert stage.orders == []
    assert stage.told(AuditKind.ADVISED)[-1] == "training went on after the fatal line: the advice is withdrawn"


async def test_a_failure_after_a_survived_fatal_line_has_its_own_detection(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False))
    fault = await job.until(lambda state: state.advice is not None and state.phase.value == "watching")
    stage.reports(parts.survived())
    await job.until(lambda state: state.advice is None)
    stage.reports(parts.ended(exit_code=1), parts.completed())

    report = await job.report()

    kinds = [milestone.kind for milestone in report.milestones]
    assert kinds.count(MilestoneKind.DETECTED) == 1
    detected = next(milestone for milestone in report.milestones if milestone.kind is MilestoneKind.DETECTED)
    assert fault.symptom is not None
    assert detected.at > fault.symptom.detected_at


async def test_the_programs_own_wish_not_to_be_requeued_counts_after_a_fatal_line_too(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False), parts.ended(exit_code=93))

    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert report.closed.startswith("stopped by policy")


async def test_a_hang_is_killed_and_restarted(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.stalled(), parts.completed())

    await job.report()

    [order] = stage.orders
    assert order.advice.kill_first
    assert order.advice.action is Action.RESTART


async def test_a_slow_down_is_advised_on_and_never_acted_on(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02").model_copy(update={"symptom": SymptomKind.STRAGGLER})
    job = await stage.adopt()
    stage.reports(parts.slowed(), parts.completed())

    await job.report()

    assert stage.orders == []
    told = [event for event in stage.audit if event.kind is AuditKind.ADVISED]
    assert told[0].advice is not None
    assert told[0].advice.exclude == ("node02",)


async def test_a_crash_after_a_slow_down_is_a_failure_of_its_own(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.slowed(), parts.ended(exit_code=1), parts.completed())

    report = await job.report()

    assert len(stage.attributed) == 2
    [order] = stage.orders
    assert order.advice.generation == 2
    detected = [milestone for milestone in report.milestones if milestone.kind is MilestoneKind.DETECTED]
    assert [milestone.detail for milestone in detected] == ["crash"]
