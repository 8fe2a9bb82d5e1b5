"""A job of a chain is never requeued: the next job is kept off its bad node, as soon as a line names that."""

from __future__ import annotations

from recovery.audit import AuditKind
from recovery.model import Mode
from recovery.optin import OptIn
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Stage

CHAIN = OptIn(mode=Mode.ACT, chain=True)


async def test_the_next_job_is_kept_off_the_bad_node_on_record_first_and_the_guard_ends(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(optin=CHAIN)
    stage.reports(parts.ended(exit_code=1))
    report = await job.report()

    assert stage.orders == []
    [order] = stage.chained
    assert (order.advice.exclude, order.ends_job) == (("node02",), False)
    assert report.closed == "its chain goes on: job 13 of the chain is next, and avoids node02"
    assert stage.program.index("audit:ordered") < stage.program.index("chain")
    assert len(stage.asked) == 1, "the governor is asked as for any act"


async def test_a_line_that_names_the_culprit_beyond_doubt_is_answered_while_the_job_still_runs(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(optin=CHAIN)
    stage.reports(parts.faulted(certain=False))
    await job.until(lambda _: bool(stage.chained))
    assert (await job.state()).closed == ""
    stage.reports(parts.ended(exit_code=1))
    await job.report()

    assert [order.ends_job for order in stage.chained] == [False, False]


async def test_a_line_without_a_culprit_waits_for_the_end(stage: Stage) -> None:
    job = await stage.adopt(optin=CHAIN)
    stage.reports(parts.faulted(certain=False), parts.survived(), parts.completed())
    await job.report()

    assert stage.chained == []


async def test_a_job_of_a_chain_that_hangs_is_ended_so_that_the_next_one_starts(stage: Stage) -> None:
    job = await stage.adopt(optin=CHAIN)
    stage.reports(parts.stalled())
    await job.report()

    assert [order.ends_job for order in stage.chained] == [True]


async def test_a_person_moves_a_job_of_a_chain_on(stage: Stage) -> None:
    job = await stage.adopt(optin=CHAIN)
    await job.says("restart", by("ana", "move it"))
    await job.report()

    assert [(order.advice.by, order.ends_job) for order in stage.chained] == [("ana", True)]


async def test_where_nobody_waits_that_is_told_and_the_job_watched_on(stage: Stage) -> None:
    stage.next_in_chain = parts.no_successor
    job = await stage.adopt(optin=CHAIN)
    stage.reports(parts.ended(exit_code=1), parts.gone())
    report = await job.report()

    assert report.closed.startswith("gone")
    assert stage.told(AuditKind.RECONCILED) == ["abandoned, no successor (no job of its chain waits)"]


async def test_in_observe_mode_a_chain_is_left_alone(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(parts.OBSERVE, CHAIN)
    stage.reports(parts.faulted(certain=False), parts.ended(exit_code=1), parts.gone())
    await job.report()

    assert stage.chained == []
