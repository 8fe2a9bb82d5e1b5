"""What an attempt showed is kept before it is killed, and the kill never waits for that beyond its bound."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.findings import Finding, WatchOrder
from recovery.audit import AuditKind
from recovery.model import Progress
from tests.workflows import parts
from tests.workflows.parts import Scene
from tests.workflows.stage import Stage


async def test_evidence_is_kept_after_the_order_is_on_record_and_before_the_kill(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.stalled(), parts.completed())

    await job.report()

    program = [word for word in stage.program if word in ("audit:ordered", "evidence", "act:restart")]
    assert program == ["audit:ordered", "evidence", "act:restart"]
    assert stage.kept[0].advice == stage.orders[0].advice
    [event] = [event for event in stage.audit if event.kind is AuditKind.EVIDENCE]
    assert event.summary == "kept the end of its output in /evidence/attempt-0.1.txt"
    assert event.details == {"file": "/evidence/attempt-0.1.txt", "host": "worker1", "output": "iteration 12"}
    assert [entry.text for entry in (await job.state()).timeline if entry.kind == "evidence"] == [event.summary]


async def test_nothing_is_kept_of_an_attempt_that_has_ended_by_itself(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.completed())

    await job.report()

    assert len(stage.orders) == 1
    assert stage.kept == []


async def test_a_kill_goes_on_without_evidence_when_there_is_no_answer_in_time(stage: Stage) -> None:
    stage.evidence.fails()
    job = await stage.adopt()
    stage.reports(parts.stalled(), parts.completed())

    await job.report()

    assert len(stage.orders) == 1
    assert len(stage.kept) == 2, "tried again once"
    assert stage.told(AuditKind.EVIDENCE) == ["no evidence kept: no answer in time"]


async def test_an_attempt_that_writes_a_checkpoint_is_spared_for_as_long_as_the_operator_says(stage: Stage) -> None:
    job = await stage.adopt(parts.ACT.model_copy(update={"checkpoint_grace_s": 90.0}))
    stage.reports(in_phase("checkpoint"), in_phase("train"), parts.completed())

    await job.report()

    assert [order.spare_s for order in stage.orders] == [90.0, 0.0]


def in_phase(phase: str) -> Scene:
    """A hang of an attempt whose monitor saw that phase last."""

    def scene(order: WatchOrder, now: datetime) -> Finding:
        finding = parts.stalled()(order, now)
        return finding.model_copy(update={"progress": Progress(phase=phase, last_at=now - timedelta(minutes=15))})

    return scene
