"""An act by policy needs the governor's grant; without one the job is observed, loudly, and tried again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from recovery.audit import AuditKind
from recovery.detection.state import MonitorState
from recovery.governor import Limit, Ruling, Tripped
from recovery.model import Action, Mode
from recovery.optin import OptIn
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Job, Stage, eventually
from workflows.state import Phase

FULL = Tripped(limit=Limit.RESTARTS, says="3 restarts in the last 10 min, the limit is 3")
PAUSED = Tripped(limit=Limit.PAUSED, says="the cluster is paused by ana: maintenance")
HOUR = timedelta(hours=1)


async def _kept_back(stage: Stage, *scenes: parts.Scene, ruling: Ruling = FULL) -> Job:
    """A job whose advice is kept back for now."""
    stage.rulings = [ruling]
    job = await stage.adopt()
    stage.reports(*(scenes or (parts.ended(exit_code=1),)))
    await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    return job


def _kept_back_told(stage: Stage) -> list[str]:
    return [text.partition(";")[0] for text in stage.told(AuditKind.KEPT_BACK)]


async def test_an_advice_that_is_kept_back_is_carried_out_once_there_is_room(stage: Stage) -> None:
    job = await _kept_back(stage)
    state = await job.state()
    assert state.kept_back is not None
    assert (state.kept_back.limit, state.kept_back.says) == (Limit.RESTARTS, FULL.says)
    assert stage.orders == []

    stage.reports(HOUR, parts.completed())
    report = await job.report()

    [order] = stage.orders
    assert report.attempt == 1
    assert {request.key for request in stage.asked} == {order.advice.key}
    assert _kept_back_told(stage) == [f"observing for now, {FULL.says}", "there is room now: restart"]


async def test_room_that_is_told_of_is_waited_for(stage: Stage) -> None:
    until = await stage.clock() + timedelta(minutes=7)
    job = await _kept_back(stage, ruling=FULL.model_copy(update={"until": until}))
    stage.reports(HOUR, parts.completed())

    report = await job.report()

    acted = next(milestone.at for milestone in report.milestones if milestone.kind.value == "acted")
    assert until <= acted < until + timedelta(minutes=1)
    assert len(stage.asked) == 2


async def test_what_keeps_an_advice_back_is_told_once_for_each_reason(stage: Stage) -> None:
    stage.rulings = [FULL, FULL, FULL, PAUSED, PAUSED]
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), *[HOUR] * 5, parts.completed())

    await job.report()

    assert _kept_back_told(stage) == [
        f"observing for now, {FULL.says}",
        f"observing for now, {PAUSED.says}",
        "there is room now: restart",
    ]


async def test_an_advice_that_expires_while_it_is_kept_back_is_never_carried_out(stage: Stage) -> None:
    stage.rulings = [FULL] * 100
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), *[HOUR] * 40, parts.gone())

    await job.report()

    assert stage.orders == []
    assert _kept_back_told(stage)[-1].startswith("the advice expired while it was kept back")


async def test_without_an_answer_nothing_is_done_until_there_is_one(stage: Stage) -> None:
    stage.governor.gives_up()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    state = await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    assert state.kept_back is not None
    assert state.kept_back.limit is Limit.NO_ANSWER
    assert stage.orders == []

    stage.governor.is_over()
    stage.reports(HOUR, parts.completed())
    report = await job.report()

    assert report.attempt == 1
    assert _kept_back_told(stage)[0].startswith("observing for now, the governor gave no answer")


async def test_a_silent_governor_is_waited_for_with_a_deadline(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.options.ASK_DEADLINE", timedelta(seconds=0.5))
    stage.governor.is_silent()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))

    state = await job.until(lambda state: state.phase is Phase.KEPT_BACK)

    assert state.kept_back is not None
    assert state.kept_back.limit is Limit.NO_ANSWER
    stage.governor.is_over()


async def test_a_persons_restart_is_never_asked_for(stage: Stage) -> None:
    job = await _kept_back(stage)

    await job.says("restart", by("ana", "I know"))
    state = await job.until(lambda state: state.attempt == 1)

    assert state.kept_back is None
    [order] = stage.orders
    assert order.advice.by == "ana"
    assert len(stage.asked) == 1


async def test_what_a_person_approved_is_not_asked_for(stage: Stage) -> None:
    job = await stage.adopt(parts.APPROVAL)
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.AWAITING_APPROVAL)

    await job.says("approve", by("ana"))
    await job.until(lambda state: state.attempt == 1)

    assert stage.asked == []


async def test_a_stop_of_what_has_ended_is_not_asked_for(stage: Stage) -> None:
    stage.rulings = [PAUSED]
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=93))

    report = await job.report()

    assert report.closed.startswith("stopped by policy")
    assert stage.asked == []


async def test_a_stop_of_what_still_runs_costs_no_restart_and_is_kept_back_by_a_pause(stage: Stage) -> None:
    job = await stage.adopt(optin=OptIn(mode=Mode.ACT, max_restarts=0))
    stage.rulings = [PAUSED]
    stage.reports(parts.stalled())

    state = await job.until(lambda state: state.phase is Phase.KEPT_BACK)

    assert state.advice is not None
    assert state.advice.action is Action.STOP
    [request] = stage.asked
    assert not request.restarts
    assert stage.orders == []


async def test_in_observe_mode_nobody_is_asked(stage: Stage) -> None:
    job = await stage.adopt(optin=OptIn(mode=Mode.OBSERVE))
    stage.reports(parts.ended(exit_code=1), parts.gone())

    await job.report()

    assert stage.asked == []


async def test_while_its_own_pause_lasts_a_job_does_not_ask_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wait in ("SOONEST", "PAUSED_AGAIN"):
        monkeypatch.setattr(f"workflows.governing.{wait}", timedelta(seconds=0.2))
    stage.rulings = [FULL] * 1_000
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: len(stage.asked) > 2)
    await job.says("pause", by("ana"))
    await job.until(lambda state: state.phase is Phase.PAUSED)
    asked = len(stage.asked)

    await asyncio.sleep(1)
    assert len(stage.asked) == asked
    stage.rulings.clear()
    await job.says("resume", by("ana"))

    await eventually(lambda: len(stage.orders) == 1)


async def test_a_job_that_is_requeued_by_others_meanwhile_is_left_alone(stage: Stage) -> None:
    job = await _kept_back(stage)
    stage.reports(parts.requeued(), parts.completed())

    report = await job.report()

    assert report.attempt == 1
    assert stage.orders == []


async def test_a_hang_that_was_kept_back_is_acted_on_only_if_it_is_told_again(stage: Stage) -> None:
    taken = MonitorState(stall_taken=parts.SUBMITTED_AT)
    job = await _kept_back(stage, lambda order, now: parts.stalled()(order, now).model_copy(update={"monitor": taken}))
    stage.reports(HOUR, parts.stalled(), parts.completed())

    report = await job.report()

    assert [watch.monitor.stall_taken for watch in stage.watches[:3]] == [None, parts.SUBMITTED_AT, None]
    [order] = stage.orders
    assert order.advice.generation == 2, "it was looked into anew"
    assert report.attempt == 1


async def test_a_hang_that_passed_while_it_was_kept_back_is_not_acted_on(stage: Stage) -> None:
    job = await _kept_back(stage, parts.stalled())
    stage.reports(HOUR, HOUR, parts.completed())

    report = await job.report()

    assert report.attempt == 0
    assert stage.orders == []
    assert len(stage.asked) == 1


async def test_the_governor_is_asked_with_what_the_job_takes_and_excludes(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    [request] = stage.asked
    assert (request.partition, request.nodes, request.exclude) == ("gpu", 4, ("node02",))
    assert request.restarts


async def test_a_failure_is_told_along_with_the_question_and_once(stage: Stage) -> None:
    job = await _kept_back(stage)
    stage.reports(HOUR, parts.ended(exit_code=1), parts.completed())

    await job.report()

    told = [request.failure for request in stage.asked]
    assert [failure.attempt if failure else None for failure in told] == [0, None, 1]
    assert told[0] is not None
    assert (told[0].job, told[0].partition, told[0].advice) == (str(job.key), "gpu", "restart")
