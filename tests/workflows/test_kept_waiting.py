"""A job that was put back and can't start because of what relight keeps it off."""

from __future__ import annotations

from recovery.audit import AuditKind
from recovery.model import Action, Disposition, Mode
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Stage, eventually


async def test_the_policys_exclusions_are_withdrawn_once_and_on_record(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.cannot_start("node02"))
    await eventually(lambda: len(stage.watches) == 3)
    state = await job.state()

    assert stage.watches[1].kept_off == ("node02",)
    assert stage.watches[-1].kept_off == ()
    order = stage.orders[1]
    assert (order.advice.attempt, order.advice.action, order.advice.by) == (0, Action.RESTART, "policy")
    assert order.wanted_exclusions(("node02", "node09")) == ("node09",)
    assert (state.exclusions, state.readmitted, state.attempt) == ((), (), 1)
    assert state.reconciliation is not None
    assert state.reconciliation.disposition is Disposition.CONVERGED
    assert stage.program.index("audit:warned") < stage.program.index("act:restart")
    assert stage.told(AuditKind.WARNED) == [
        "the job could not start without node02: it may use what it was kept off again"
    ]

    stage.reports(parts.allocated(), parts.resumed(), parts.completed())
    await job.report()
    assert len(stage.orders) == 2


async def test_the_next_failure_is_recovered_as_ever(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.cannot_start("node02"), parts.allocated(), parts.resumed())
    stage.reports(parts.ended(exit_code=1, checkpoint=7), parts.allocated(), parts.resumed(), parts.completed())
    await job.report()

    last = stage.orders[-1]
    assert (last.advice.attempt, last.advice.exclude, len(stage.orders)) == (1, ("node02",), 3)


async def test_what_a_person_excluded_stays_and_is_told_once(stage: Stage) -> None:
    job = await stage.adopt()
    await job.says("exclude", by("ana", "it flaps", nodes=("node03",)))
    await job.until(lambda state: bool(state.exclusions))
    stage.reports(parts.ended(exit_code=1), parts.cannot_start("node03"))
    await job.until(lambda state: state.told_cannot_start == 1)
    stage.reports(parts.allocated(("node01", "node02")), parts.completed())
    await job.report()

    assert len(stage.orders) == 1
    assert stage.watches[-1].kept_off == ()
    [told] = stage.told(AuditKind.WARNED)
    assert told.startswith("the job can't start while relight keeps it off node03: `relight readmit`")


async def test_in_mode_observe_it_is_only_told(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.attempt == 1)
    await job.says("mode", by("ana", mode=Mode.OBSERVE))
    await job.until(lambda state: state.mode_override is Mode.OBSERVE)
    stage.reports(parts.cannot_start("node02"), parts.allocated(("node01", "node03")), parts.completed())
    await job.report()

    assert len(stage.orders) == 1
    assert len(stage.told(AuditKind.WARNED)) == 1


async def test_an_attempt_that_started_meanwhile_keeps_its_list_for_the_next_act(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    stage.outcomes = [parts.done, parts.started_as_it_was]
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.cannot_start("node02"))
    await eventually(lambda: len(stage.watches) == 3)

    assert ((await job.state()).exclusions, (await job.state()).readmitted) == ((), ("node02",))
