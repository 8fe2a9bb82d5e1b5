"""Observe advises and touches nothing; a person's word can let the standing advice through."""

from __future__ import annotations

import asyncio

from recovery.audit import AuditKind
from recovery.model import Action, Mode
from recovery.optin import OptIn
from tests.workflows import parts
from tests.workflows.stage import Stage, eventually

OBSERVES = OptIn(mode=Mode.OBSERVE)


async def test_observe_gives_the_same_advice_and_touches_nothing(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    acting, observing = await stage.adopt(), None
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: len(stage.orders) == 1)
    stage.reports(parts.gone())
    await acting.report()
    observing = await stage.adopt(optin=OBSERVES)
    stage.reports(parts.ended(exit_code=1), parts.gone())

    report = await observing.report()

    [act], advised = stage.orders, stage.told(AuditKind.ADVISED)
    assert act.advice.job == acting.key
    assert act.by_its_comment, "what the owner makes of that until then counts"
    assert advised[0] == advised[1]
    assert advised[2] == "mode observe: nothing is carried out"
    assert report.attempt == 0
    assert report.closed.startswith("gone")


async def test_an_operator_who_has_not_acknowledged_acts_gets_none(stage: Stage) -> None:
    job = await stage.adopt(parts.ACT.model_copy(update={"acknowledged": False}))
    stage.reports(parts.ended(exit_code=1), parts.gone())

    await job.report()

    assert stage.orders == []


async def test_the_operators_terms_at_the_decision_count_not_those_at_adoption(stage: Stage) -> None:
    job = await stage.adopt(parts.ACT)
    stage.terms = parts.OBSERVE
    stage.reports(parts.ended(exit_code=1), parts.gone())

    await job.report()

    assert stage.orders == []


async def test_mode_act_carries_out_the_standing_advice(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(optin=OBSERVES)
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.ended)

    await job.says("mode", parts.by("ana", "convinced", mode=Mode.ACT))
    await eventually(lambda: len(stage.orders) == 1)
    stage.reports(parts.completed())
    await job.report()

    [order] = stage.orders
    assert (order.advice.action, order.advice.exclude) == (Action.RESTART_EXCLUDE, ("node02",))
    assert not order.by_its_comment, "a person's word stands before the comment"
    assert stage.told(AuditKind.MODE) == ["mode act: convinced"]


async def test_mode_act_does_not_carry_out_an_advice_that_has_expired(stage: Stage) -> None:
    job = await stage.adopt(parts.ACT.model_copy(update={"advice_lifetime_s": 0.2}), optin=OBSERVES)
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.ended)
    await asyncio.sleep(0.3)

    await job.says("mode", parts.by("ana", mode=Mode.ACT))
    stage.reports(parts.gone())
    await job.report()

    assert stage.orders == []


async def test_mode_act_does_not_act_on_a_fatal_line_before_the_attempt_has_ended_or_stands_still(
    stage: Stage,
) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(optin=OBSERVES)
    stage.reports(parts.faulted(certain=False))
    await job.until(lambda state: state.advice is not None and state.phase.value == "watching")

    await job.says("mode", parts.by("ana", mode=Mode.ACT))
    await job.until(lambda state: not state.commands)
    stage.reports(parts.survived(), parts.completed())
    await job.report()

    assert stage.orders == []
    assert AuditKind.ORDERED not in [event.kind for event in stage.audit]
