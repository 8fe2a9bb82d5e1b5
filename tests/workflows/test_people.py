"""A person's word: accepted or refused with a reason, carried out, and on record with who and why."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError

from activities.assessment import Terms
from recovery.audit import AuditKind
from recovery.model import Action, MilestoneKind, Mode
from recovery.optin import OptIn
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Job, Stage, eventually
from workflows.overrides import Request, Verb
from workflows.state import Phase, RecoveryState

PHASE = SearchAttributeKey.for_keyword("RecoveryPhase")


async def _until_approval(stage: Stage, node: str = "node02") -> Job:
    """A job whose restart without `node` waits for approval."""
    stage.verdict = parts.bad_node(node)
    job = await stage.adopt(parts.APPROVAL)
    stage.reports(parts.ended(exit_code=1))
    await job.until(_awaits)
    return job


def _awaits(state: RecoveryState) -> bool:
    return state.phase is Phase.AWAITING_APPROVAL


async def _refusal(job: Job, verb: str, request: Request) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await job.says(verb, request)
    assert isinstance(refused.value.cause, ApplicationError)
    return refused.value.cause.message


async def test_an_approved_advice_is_carried_out_in_the_approvers_name(stage: Stage) -> None:
    job = await _until_approval(stage)
    assert stage.orders == []

    answer = await job.says("approve", by("ana", "the Xid is plain", generation=1))
    stage.reports(parts.completed())
    report = await job.report()

    assert answer.text == "approve accepted"
    [order] = stage.orders
    assert (order.advice.by, order.advice.exclude) == ("ana", ("node02",))
    assert MilestoneKind.APPROVED in [milestone.kind for milestone in report.milestones]
    assert [(event.who, event.summary) for event in stage.audit if event.kind is AuditKind.APPROVED] == [
        ("ana", "approve: the Xid is plain")
    ]


async def test_a_job_that_waits_for_approval_is_found_by_its_phase(stage: Stage) -> None:
    job = await _until_approval(stage)

    description = await job.handle.describe()

    assert description.typed_search_attributes[PHASE] == "awaiting_approval"


async def test_a_rejected_advice_is_not_carried_out_and_the_job_stays_watched(stage: Stage) -> None:
    job = await _until_approval(stage)

    await job.says("reject", by("ana", "we debug it"))
    stage.reports(parts.gone())
    await job.report()

    assert stage.orders == []
    assert stage.watches[-1].ended
    assert stage.told(AuditKind.REJECTED) == ["reject: we debug it"]


async def test_a_rejected_advice_does_not_come_back_by_another_word(stage: Stage) -> None:
    job = await _until_approval(stage)
    await job.says("reject", by("ana"))

    for verb, request in (("mode", by("ana", mode=Mode.ACT)), ("pause", by("ana")), ("resume", by("ana"))):
        await job.says(verb, request)
    await job.until(lambda state: not state.commands)
    stage.reports(parts.gone())
    await job.report()

    assert stage.orders == []


async def test_an_advice_that_nobody_approves_expires(stage: Stage) -> None:
    stage.verdict = parts.bad_node()
    job = await stage.adopt(parts.APPROVAL)
    stage.reports(parts.ended(exit_code=1), parts.gone())

    await job.report()

    assert stage.orders == []
    assert stage.told(AuditKind.REJECTED) == ["the advice expired without an approval: nothing is done"]
    advised, expired = (
        next(event.at for event in stage.audit if event.kind is kind)
        for kind in (AuditKind.ADVISED, AuditKind.REJECTED)
    )
    assert (expired - advised).total_seconds() == pytest.approx(parts.APPROVAL.advice_lifetime_s, abs=2)


async def test_excluding_a_node_while_the_advice_waits_makes_it_another_advice(stage: Stage) -> None:
    job = await _until_approval(stage, "node02")

    await job.says("exclude", by("ben", "it flaps", nodes=("node03",)))
    changed = await job.until(lambda state: state.generation == 2)
    refusal = await _refusal(job, "approve", by("ana", generation=1))
    await job.says("approve", by("ana", generation=2))
    stage.reports(parts.completed())
    await job.report()

    assert changed.advice is not None
    assert refusal == "the advice is now generation 2: look at it again"
    [order] = stage.orders
    assert (order.advice.generation, order.advice.exclude) == (2, ("node02", "node03"))


async def test_readmitting_a_node_while_the_advice_waits_makes_it_another_advice(stage: Stage) -> None:
    job = await _until_approval(stage, "node02")

    await job.says("readmit", by("ben", "the cable was replaced", nodes=("node02",)))
    await job.until(lambda state: state.generation == 2)
    await job.says("approve", by("ana"))
    stage.reports(parts.completed())
    await job.report()

    [order] = stage.orders
    assert (order.advice.generation, order.advice.exclude) == (2, ())


@pytest.mark.temporal
async def test_an_approval_that_crosses_a_change_of_the_advice_is_no_approval(real_stage: Stage) -> None:
    stage = real_stage
    job = await _until_approval(stage)
    await stage.pause_workflows()

    await job.signals("exclude", by("ben", nodes=("node03",)))
    await job.signals("approve", by("ana", generation=1))
    await stage.go_on()
    state = await job.until(lambda state: state.generation == 2 and not state.commands)

    assert state.phase is Phase.AWAITING_APPROVAL
    assert state.timeline[-1].text == "approve was meant for an advice that has changed since"
    assert stage.orders == []


async def test_a_restart_by_a_person_needs_no_approval_and_overtakes_the_advice_that_waits(stage: Stage) -> None:
    job = await _until_approval(stage)

    await job.says("restart", by("ana", "now"))
    stage.reports(parts.completed())
    report = await job.report()

    [order] = stage.orders
    assert (order.advice.by, order.advice.generation, order.advice.reason) == ("ana", 2, "now")
    assert report.attempt == 1


async def test_a_person_restarts_a_running_job(stage: Stage) -> None:
    job = await stage.adopt()
    await eventually(lambda: len(stage.watches) == 1)

    await job.says("restart", by("ana", "stuck in data loading"))
    await eventually(lambda: len(stage.watches) == 2)
    stage.reports(parts.completed())
    report = await job.report()

    [order] = stage.orders
    assert (order.advice.action, order.advice.by, order.advice.kill_first) == (Action.RESTART, "ana", True)
    assert order.submitted_at == parts.submitted_at(0)
    assert report.attempt == 1
    assert stage.watches[1].report_start


async def test_a_person_stops_a_running_job(stage: Stage) -> None:
    job = await stage.adopt()
    await eventually(lambda: len(stage.watches) == 1)

    await job.says("stop", by("ana", "wrong data"))
    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert report.closed == "stopped by ana: wrong data"


async def test_an_excluded_node_is_kept_from_the_next_attempt(stage: Stage) -> None:
    job = await stage.adopt()
    await eventually(lambda: len(stage.watches) == 1)

    await job.says("exclude", by("ana", "it flaps", nodes=("node03",)))
    await job.until(lambda state: bool(state.exclusions))
    assert stage.orders == []
    stage.reports(parts.ended(exit_code=1), parts.completed())
    await job.report()

    [order] = stage.orders
    assert order.advice.exclude == ("node03",)


async def test_a_node_readmitted_while_the_job_waits_is_withdrawn_at_once(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.attempt == 1)

    answer = await job.says("readmit", by("ana", "repaired", nodes=("node02",)))
    await eventually(lambda: len(stage.orders) == 2)
    stage.reports(parts.completed())
    await job.report()

    assert "at once while the job waits" in answer.text
    order = stage.orders[1]
    assert order.wanted_exclusions(("node02", "node09")) == ("node09",)
    assert (order.advice.attempt, order.advice.by, order.advice.reason) == (0, "ana", "repaired")
    assert ((await job.state()).exclusions, (await job.state()).readmitted) == ((), ())


async def test_a_readmitted_node_is_withdrawn_from_the_scheduler_by_the_next_act(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.attempt == 1)
    stage.reports(parts.allocated(("node01", "node03", "node04", "node05")))
    await job.until(lambda state: bool(state.nodes))

    await job.says("readmit", by("ana", "repaired", nodes=("node02",)))
    await job.until(lambda state: not state.exclusions)
    stage.verdict = parts.no_cause()
    stage.reports(parts.ended(exit_code=1, checkpoint=1), parts.completed())
    await job.report()

    first, second = stage.orders
    assert first.wanted_exclusions(("node09",)) == ("node02", "node09")
    assert second.wanted_exclusions(("node02", "node09")) == ("node09",)
    assert (await job.state()).readmitted == ()


async def test_a_node_excluded_after_the_advice_was_given_is_part_of_it_when_it_is_carried_out(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False))
    await job.until(lambda state: state.advice is not None and state.phase is Phase.WATCHING)

    await job.says("exclude", by("ana", "it flaps", nodes=("node03",)))
    await job.until(lambda state: bool(state.exclusions))
    stage.reports(parts.ended(exit_code=1), parts.completed())
    await job.report()

    [order] = stage.orders
    assert (order.advice.exclude, order.withdraw) == (("node02", "node03"), ())


async def test_a_readmit_never_withdraws_what_the_user_excluded(stage: Stage) -> None:
    job = await stage.adopt()
    await eventually(lambda: len(stage.watches) == 1)
    await job.says("exclude", by("ana", nodes=("node09",)))
    await job.says("readmit", by("ana", nodes=("node09",)))
    await job.until(lambda state: not state.commands)
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    [order] = stage.orders
    assert order.wanted_exclusions(("node09",)) == ("node09",)


async def test_a_pause_holds_the_decision_and_a_resume_lets_it_go_on(stage: Stage) -> None:
    job = await stage.adopt()
    await eventually(lambda: len(stage.watches) == 1)

    await job.says("pause", by("ana", "maintenance"))
    await job.until(lambda state: state.paused and not state.commands)
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: "a failure was seen; paused, so nothing is decided" in stage.told(AuditKind.DETECTED))
    assert (stage.attributed, stage.orders) == ([], [])
    await job.says("resume", by("ana", "done"))
    stage.reports(parts.completed())
    await job.report()

    assert len(stage.orders) == 1
    assert stage.told(AuditKind.OVERRIDE) == ["pause: maintenance", "resume: done"]


async def test_a_pause_holds_the_standing_advice_too_until_resumed(stage: Stage) -> None:
    job = await stage.adopt(optin=OptIn(mode=Mode.OBSERVE))
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.ended)

    await job.says("pause", by("ana"))
    await job.says("mode", by("ana", mode=Mode.ACT))
    await job.says("resume", by("ana"))
    await job.until(lambda state: state.attempt == 1)
    stage.reports(parts.completed())
    await job.report()

    assert len(stage.orders) == 1
    told = [event.summary for event in stage.audit]
    assert told.index("mode act") < told.index("resume") < told.index("carrying out: restart")


async def test_a_person_decides_while_the_job_is_paused(stage: Stage) -> None:
    job = await stage.adopt()
    await job.says("pause", by("ana"))
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: bool(stage.told(AuditKind.DETECTED)))

    await job.says("stop", by("ana", "enough"))
    report = await job.report()

    assert [order.advice.action for order in stage.orders] == [Action.STOP]
    assert (report.closed, stage.attributed) == ("stopped by ana: enough", [])


async def test_mode_observe_takes_effect_at_once(stage: Stage) -> None:
    job = await stage.adopt()
    await job.says("mode", by("ana", "not tonight", mode=Mode.OBSERVE))
    stage.reports(parts.ended(exit_code=1), parts.gone())

    await job.report()

    assert stage.orders == []
    [event] = [event for event in stage.audit if event.kind is AuditKind.MODE]
    assert (event.who, event.summary, event.mode) == ("ana", "mode observe: not tonight", Mode.ACT)


@pytest.mark.temporal
@pytest.mark.parametrize(
    ("terms", "verb", "request_", "reason"),
    [
        (parts.ACT, "approve", by("ana"), "no advice is waiting for approval"),
        (parts.ACT, "reject", by("ana"), "no advice is waiting for approval"),
        (parts.OBSERVE, "restart", by("ana"), "the mode is observe: set mode act first"),
        (parts.OBSERVE, "stop", by("ana"), "the mode is observe: set mode act first"),
        (parts.ACT, "exclude", by("ana"), "exclude needs at least one node"),
        (parts.ACT, "readmit", by("ana"), "readmit needs at least one node"),
        (parts.ACT, "mode", by("ana"), "mode needs observe or act"),
        (parts.OBSERVE, "mode", by("ana", mode=Mode.ACT), "the strictest wins"),
        (
            parts.ACT.model_copy(update={"acknowledged": False}),
            "mode",
            by("ana", mode=Mode.ACT),
            "acknowledge_scheduler_actions is not set",
        ),
    ],
)
async def test_a_refused_update_says_why_and_leaves_no_event(
    real_stage: Stage, terms: Terms, verb: str, request_: Request, reason: str
) -> None:
    stage = real_stage
    job = await stage.adopt(terms)
    await eventually(lambda: bool(stage.watches) and bool(stage.audit))
    refusal = await _refusal(job, verb, request_)

    assert reason in refusal
    assert not [event for event in await job.events() if "UPDATE" in event]


async def test_a_refused_signal_becomes_a_line_of_the_timeline(stage: Stage) -> None:
    job = await stage.adopt(parts.OBSERVE)

    await job.signals("restart", by("ana", "please"))
    state = await job.until(lambda state: len(state.timeline) > 1)

    [line] = [line for line in state.timeline if line.who == "ana"]
    assert line.kind == "note"
    assert line.text == (
        "restart was refused: restart would change the scheduler, and the mode is observe: set mode act first"
    )


@pytest.mark.parametrize("verb", list(Verb))
async def test_every_verb_may_be_sent_as_a_signal_too(stage: Stage, verb: Verb) -> None:
    waits = verb in (Verb.APPROVE, Verb.REJECT)
    job = await _until_approval(stage) if waits else await stage.adopt()
    request = by("ana", "so be it", nodes=("node03",), mode=Mode.OBSERVE)

    await job.signals(verb.value, request)
    await eventually(lambda: any(event.who == "ana" for event in stage.audit))

    told = next(event for event in stage.audit if event.who == "ana")
    assert told.summary.startswith(f"{verb.value} ") or told.summary.startswith(f"{verb.value}:")
    assert told.summary.endswith(": so be it")


async def test_a_request_that_is_delivered_twice_is_carried_out_once(stage: Stage) -> None:
    job = await stage.adopt()
    await eventually(lambda: len(stage.watches) == 1)
    request = by("ana", "now", request_id="r-1")

    first = await job.says("restart", request)
    again = await job.says("restart", request)
    await job.signals("restart", request)
    await job.until(lambda state: state.attempt == 1)
    stage.reports(parts.completed())
    await job.report()

    assert (first.text, again.text) == ("restart accepted", "restart was accepted before")
    assert len(stage.orders) == 1


async def test_many_words_at_once_are_all_carried_out_in_order(stage: Stage) -> None:
    job = await stage.adopt()
    nodes = [f"node{number:02}" for number in range(10, 18)]

    await asyncio.gather(*(job.says("exclude", by("ana", nodes=(node,))) for node in nodes))
    state = await job.until(lambda state: not state.commands)

    assert sorted(exclusion.node for exclusion in state.exclusions) == nodes
    numbers = [int(event.key.rpartition("/")[2]) for event in stage.audit]
    assert numbers == sorted(numbers)
