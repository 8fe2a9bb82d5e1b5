"""A second opinion is waited for by nobody, counts while the advice is open, and is on record whenever it comes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from activities.adopt import MAKE_WAY_SIGNAL
from activities.assessment import Terms
from recovery.audit import AuditKind
from recovery.governor import Limit, Tripped
from recovery.model import Action, Confidence
from recovery.opinion import Hint, NoOpinion, Opinion
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Job, Stage, eventually
from workflows.state import Phase, RecoveryState

LISTENS = {"second_opinion_s": 180.0}
ACT = parts.ACT.model_copy(update=LISTENS)
APPROVAL = parts.APPROVAL.model_copy(update=LISTENS)
OBSERVE = parts.OBSERVE.model_copy(update=LISTENS)
FULL = Tripped(limit=Limit.RESTARTS, says="3 restarts in the last 10 min, the limit is 3")
HOUR = timedelta(hours=1)


def says(hint: Hint = Hint.STOP, **told: Any) -> Opinion:
    facts = {"says": "nvrx", "hint": hint, "text": "budget exhausted", "received_at": parts.SUBMITTED_AT, **told}
    return Opinion(**facts)


def told(stage: Stage) -> list[str]:
    return stage.told(AuditKind.OPINION)


async def failed(stage: Stage, terms: Terms, *scenes: parts.Scene) -> Job:
    """A job whose failure the service is thinking about."""
    job = await stage.adopt(terms)
    stage.reports(*(scenes or (parts.ended(exit_code=1),)))
    await eventually(lambda: bool(stage.consulted))
    return job


async def awaiting_approval(stage: Stage) -> Job:
    job = await failed(stage, APPROVAL)
    await job.until(lambda state: state.phase is Phase.AWAITING_APPROVAL)
    return job


def generation(number: int) -> Any:
    return lambda state: state.generation == number


async def heard(job: Job) -> RecoveryState:
    """Wait until the service's word has been weighed."""
    return await job.until(lambda state: state.asking is None and any(e.kind == "opinion" for e in state.timeline))


async def test_a_stop_that_comes_while_the_restart_awaits_approval_makes_a_stop_of_it(stage: Stage) -> None:
    job = await awaiting_approval(stage)
    stage.opinion = says()
    state = await job.until(generation(2))
    assert state.advice is not None
    assert (state.advice.action, state.advice.rule, state.phase) == (
        Action.STOP,
        "service_stop",
        Phase.AWAITING_APPROVAL,
    )

    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await job.says("approve", by("ana"))
    assert "with its generation, 2" in str(refused.value.cause)
    await job.says("approve", by("ana", generation=2))
    report = await job.report()

    [order] = stage.orders
    assert (order.advice.action, order.advice.generation, order.advice.by) == (Action.STOP, 2, "ana")
    assert report.closed == "stopped by ana: nvrx says stop: budget exhausted"
    assert told(stage) == ["nvrx says stop: budget exhausted"]
    advised = [event for event in stage.audit if event.kind is AuditKind.ADVISED]
    assert [event.advice.generation for event in advised if event.advice] == [1, 2]
    assert stage.consulted[0].key == advised[0].advice.key  # type: ignore[union-attr]


async def test_a_stop_that_comes_while_the_restart_is_kept_back_is_carried_out_at_once(stage: Stage) -> None:
    stage.rulings = [FULL]
    job = await failed(stage, ACT)
    await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    stage.opinion = says()

    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert report.closed == "stopped by policy: nvrx says stop: budget exhausted"
    assert len(stage.asked) == 1


async def test_a_stop_waits_like_any_advice_while_a_person_has_paused_the_job(stage: Stage) -> None:
    stage.rulings = [FULL]
    job = await failed(stage, ACT)
    await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    await job.says("pause", by("ana"))
    stage.opinion = says()
    await job.until(generation(2))
    await job.until(lambda state: state.asking is None and state.paused)
    assert stage.orders == []
    await job.says("resume", by("ana"))

    await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert len(stage.asked) == 1


async def test_a_stop_that_comes_after_the_restart_ends_nothing_and_counts_for_the_next_failure(stage: Stage) -> None:
    job = await failed(stage, ACT)
    await job.until(lambda state: state.attempt == 1)
    stage.opinion = says()
    await heard(job)
    stage.reports(parts.allocated(), parts.resumed(101))
    state = await job.until(lambda state: bool(state.progress.iteration))
    assert (state.attempt, state.closed, len(stage.orders)) == (1, "", 1)
    assert state.past[0].stop_said_by == "nvrx"

    stage.opinion = None
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.CLOSED)
    stage.opinion = says()
    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.RESTART, Action.STOP]
    assert report.closed == "stopped by policy: nvrx said stop of attempt 0, too late, and that failure is back"
    assert told(stage) == [
        "too late, the job has been restarted; nvrx says stop: budget exhausted; remembered for the next failure",
        "too late, the guard has ended; nvrx says stop: budget exhausted",
    ]


async def test_a_question_that_the_next_failure_replaces_is_on_record(stage: Stage) -> None:
    job = await failed(stage, ACT)
    stage.reports(parts.allocated(), parts.ended(exit_code=1, checkpoint=100))
    await eventually(lambda: [order.attempt.attempt for order in stage.consulted] == [0, 1])
    stage.opinion = says(Hint.RESTART, text="")
    await heard(job)
    stage.reports(parts.allocated(), parts.completed())

    await job.report()

    assert told(stage) == [
        "not heard out on attempt 0: the next one has failed",
        "too late, the job has been restarted; nvrx says restart",
    ]


async def test_a_late_stop_is_forgotten_after_a_new_checkpoint(stage: Stage) -> None:
    job = await failed(stage, ACT)
    await job.until(lambda state: state.attempt == 1)
    stage.opinion = says()
    await heard(job)
    stage.opinion = None
    stage.reports(parts.allocated(), parts.ended(exit_code=1, checkpoint=100))
    await job.until(lambda state: state.attempt == 2)

    assert [order.advice.action for order in stage.orders] == [Action.RESTART, Action.RESTART]


async def test_a_service_that_is_down_is_one_line_of_the_record(stage: Stage) -> None:
    stage.counsel.gives_up()
    job = await failed(stage, ACT)
    stage.reports(parts.allocated(), parts.resumed(), parts.completed())

    report = await job.report()

    assert report.closed == "completed"
    assert [order.advice.action for order in stage.orders] == [Action.RESTART]
    assert told(stage) == ["no second opinion: Trouble: not today"]


async def test_a_service_without_an_opinion_says_why(stage: Stage) -> None:
    job = await awaiting_approval(stage)
    stage.opinion = NoOpinion(says="nvrx", reason="HTTP 503; see its log", received_at=parts.SUBMITTED_AT)
    state = await heard(job)
    assert state.generation == 1
    await job.says("approve", by("ana"))
    stage.reports(parts.completed())
    await job.report()
    assert told(stage) == ["nvrx has no opinion: HTTP 503; see its log"]


async def test_a_service_that_waits_for_the_end_is_asked_again_then_although_the_advice_stands(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    stage.opinion = NoOpinion(says="nvrx", reason="asked when it has failed", received_at=parts.SUBMITTED_AT)
    job = await failed(stage, ACT, parts.faulted(certain=False))
    await eventually(lambda: stage.answered == 1)
    stage.opinion = says(Hint.RESTART)
    stage.reports(parts.ended(exit_code=1))
    await heard(job)
    assert [order.attempt.failed for order in stage.consulted] == [False, True]
    assert [[end.offset for end in order.attempt.ended] for order in stage.consulted] == [[], [1_000]]
    assert len({order.key for order in stage.consulted}) == 1, "it is the same advice"
    assert [text for text in told(stage) if "no opinion" in text] == []


async def test_a_service_that_never_answers_keeps_nobody_waiting(stage: Stage) -> None:
    job = await failed(stage, ACT)
    stage.reports(parts.allocated(), parts.resumed(), parts.completed())

    state = await job.until(lambda state: state.phase is Phase.CLOSED)

    assert (state.closed, state.attempt) == ("completed", 1)
    assert told(stage) == []


async def test_what_is_said_after_the_guards_end_is_on_record(stage: Stage) -> None:
    job = await failed(stage, ACT)
    stage.reports(parts.allocated(), parts.resumed(), parts.completed())
    await job.until(lambda state: state.phase is Phase.CLOSED)
    stage.opinion = says()

    report = await job.report()

    assert (report.closed, report.attempt, len(stage.orders)) == ("completed", 1, 1)
    assert told(stage) == ["too late, the guard has ended; nvrx says stop: budget exhausted"]


async def test_a_guard_that_has_ended_makes_way_when_the_job_goes_on(stage: Stage) -> None:
    job = await failed(stage, ACT)
    stage.reports(parts.allocated(), parts.resumed(), parts.completed())
    await job.until(lambda state: state.phase is Phase.CLOSED)
    await job.handle.signal(MAKE_WAY_SIGNAL)

    report = await job.report()

    assert report.closed == "completed"
    assert told(stage) == ["not heard out: the job goes on, under a guard of its own"]


async def test_nodes_that_it_blames_are_kept_off_where_the_verdict_names_none(stage: Stage) -> None:
    job = await awaiting_approval(stage)
    stage.opinion = says(Hint.RESTART, nodes=("node03",), text="row remapping failed")
    state = await job.until(generation(2))
    assert state.advice is not None
    assert (state.advice.action, state.advice.exclude) == (Action.RESTART_EXCLUDE, ("node03",))
    await job.says("approve", by("ana"))
    stage.reports(parts.completed())
    await job.report()
    assert [order.advice.exclude for order in stage.orders] == [("node03",)]


@pytest.mark.parametrize(
    "opinion",
    [
        says(Hint.RESTART, nodes=(*parts.NODES, "node05")),
        says(Hint.RESTART, nodes=("node03",), confidence=Confidence.GUESS),
        says(Hint.CONTINUE, nodes=("node03",)),
        says(Hint.STOP, confidence=Confidence.GUESS),
        says(Hint.UNKNOWN),
        says(Hint.RESTART),
    ],
    ids=["all nodes", "a guess", "no failure", "a guessed stop", "unknown", "restart"],
)
async def test_what_blames_everybody_guesses_or_does_not_know_changes_nothing(stage: Stage, opinion: Opinion) -> None:
    job = await awaiting_approval(stage)
    stage.opinion = opinion
    state = await heard(job)
    assert (state.generation, state.timeline[-1].text.endswith("that changes nothing")) == (1, True)


async def test_a_stop_does_not_count_against_a_node_that_is_known_to_be_bad(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await awaiting_approval(stage)
    stage.opinion = says()
    state = await heard(job)
    assert state.advice is not None
    assert (state.generation, state.advice.exclude) == (1, ("node02",))


async def test_in_observe_mode_the_advice_changes_and_nothing_is_done(stage: Stage) -> None:
    job = await failed(stage, OBSERVE)
    stage.opinion = says()
    state = await job.until(generation(2))
    assert state.advice is not None
    assert state.advice.action is Action.STOP
    stage.reports(parts.gone())
    await job.report()
    assert stage.orders == []
    assert told(stage) == ["nvrx says stop: budget exhausted"]


async def test_an_opinion_on_a_fatal_line_is_forgotten_when_training_goes_on(stage: Stage) -> None:
    job = await failed(stage, ACT, parts.faulted(certain=False))
    stage.opinion = says()
    state = await job.until(generation(2))
    assert (state.due, stage.orders) == (False, [])
    stage.reports(parts.survived())
    await job.until(lambda state: state.advice is None and state.opinion is None)

    stage.opinion = None
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.attempt == 1)
    assert [order.advice.action for order in stage.orders] == [Action.RESTART]


async def test_a_persons_word_stands_against_a_later_opinion(stage: Stage) -> None:
    job = await awaiting_approval(stage)
    await job.says("exclude", by("ana", nodes=("node04",)))
    await job.until(generation(2))
    stage.opinion = says()
    state = await heard(job)
    assert state.advice is not None
    assert (state.generation, state.advice.exclude) == (2, ("node04",))
    assert state.timeline[-1].text.startswith("too late, the advice has been changed since")


async def test_a_rejected_advice_stays_as_it_was_rejected(stage: Stage) -> None:
    job = await awaiting_approval(stage)
    await job.says("reject", by("ana", "we debug it"))
    await job.until(lambda state: not state.due)
    stage.opinion = says()
    state = await heard(job)
    assert state.advice is not None
    assert (state.generation, state.advice.action) == (1, Action.RESTART)
    assert state.timeline[-1].text.startswith("too late, the advice was rejected; nvrx says stop")


async def test_an_opinion_that_comes_during_the_act_waits_for_its_end(stage: Stage) -> None:
    stage.act.is_silent()
    job = await failed(stage, ACT)
    await eventually(lambda: bool(stage.orders))
    stage.opinion = says()
    await eventually(lambda: stage.answered == 1)
    for _ in range(10):
        state = await job.state()
        assert (state.generation, state.asking is None) == (1, False)
        await asyncio.sleep(0.05)
    stage.act.is_over()
    state = await heard(job)
    assert (state.generation, state.attempt, state.past[0].stop_said_by) == (1, 1, "nvrx")
    assert len(stage.orders) == 1


async def test_an_opinion_that_is_there_at_once_is_part_of_the_first_advice(stage: Stage) -> None:
    stage.fast_opinion = says(says="ours")
    job = await stage.adopt(ACT)
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.CLOSED)
    stage.opinion = says(Hint.UNKNOWN, says="ours", text="")

    report = await job.report()

    assert report.closed == "stopped by policy: ours says stop: budget exhausted"
    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert told(stage) == [
        "at once, ours says stop: budget exhausted",
        "too late, the guard has ended; ours does not know",
    ]
    kinds = [event.kind for event in stage.audit]
    assert kinds.index(AuditKind.ATTRIBUTED) < kinds.index(AuditKind.OPINION) < kinds.index(AuditKind.ADVISED)


async def test_what_was_said_of_a_hang_counts_when_it_is_looked_into_anew(stage: Stage) -> None:
    stage.rulings = [FULL]
    job = await failed(stage, ACT, parts.stalled())
    await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    stage.opinion = says()
    await job.until(generation(2))
    stage.reports(HOUR, parts.stalled())

    report = await job.report()

    assert [order.background.opinion for order in stage.attributed] == [None, says()]
    assert len(stage.consulted) == 1
    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert report.closed.startswith("stopped by policy: nvrx says stop")


async def test_without_a_service_nobody_is_asked(stage: Stage) -> None:
    job = await stage.adopt(parts.ACT)
    stage.reports(parts.ended(exit_code=1), parts.allocated(), parts.completed())
    await job.report()
    assert stage.consulted == []


async def test_a_new_run_asks_again(real_stage: Stage) -> None:
    stage = real_stage
    job = await failed(stage, OBSERVE)
    run = (await job.handle.describe()).run_id
    stage.reports(*[parts.blind(), parts.sighted()] * 10)
    await eventually(lambda: len(stage.consulted) == 2)
    assert (await job.handle.describe()).run_id != run
    stage.opinion = says()
    state = await job.until(generation(2))
    assert state.advice is not None
    assert state.advice.action is Action.STOP
    assert stage.consulted[0].key == stage.consulted[1].key
