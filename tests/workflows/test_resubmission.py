"""A job that can't be requeued comes back as another one, where the operator allows that, and its line is known."""

from __future__ import annotations

import pytest

from activities.lineage import Handed, Inherited
from recovery.audit import AuditKind
from recovery.model import Action, Category, Exclusion
from recovery.policy import PastAttempt
from tests.workflows import parts
from tests.workflows.stage import Stage

LAST_RESORTS = ("not_requeueable", "not_offered", "job_gone")


@pytest.mark.parametrize("reason", LAST_RESORTS)
async def test_a_job_that_cannot_be_requeued_is_submitted_anew_on_record_first(reason: str, stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    stage.outcomes = [parts.abandoned(reason)]
    job = await stage.adopt(parts.RESUBMIT)
    stage.reports(parts.ended(exit_code=1, checkpoint=100))
    report = await job.report()

    [order] = stage.resubmissions
    assert (order.advice.key, order.count) == (stage.orders[0].advice.key, 1)
    assert order.job.user == "ana"
    assert report.closed == "resubmitted as 77: a GPU of node02 has fallen off the bus"
    assert report.resubmitted_as == "77"
    assert any("resubmitted as 77" in told for told in stage.told(AuditKind.RECONCILED))
    program = stage.program
    assert len(stage.told(AuditKind.ORDERED)) == 2
    assert program.index("resubmit") > len(program) - 1 - program[::-1].index("audit:ordered")


async def test_the_attempts_and_exclusions_of_the_line_are_handed_on(stage: Stage) -> None:
    stage.verdict = parts.bad_node("node02")
    stage.outcomes = [parts.done, parts.abandoned("job_gone")]
    job = await stage.adopt(parts.RESUBMIT)
    stage.reports(parts.ended(exit_code=1, checkpoint=100), parts.allocated(), parts.ended(exit_code=1, checkpoint=150))
    handed = (await job.report()).handed_on

    assert handed is not None
    assert [(past.attempt, past.checkpoint) for past in handed.past] == [(0, 100), (1, 150)]
    assert [exclusion.node for exclusion in handed.exclusions] == ["node02"]


async def test_without_the_operators_word_nothing_is_submitted(stage: Stage) -> None:
    stage.outcomes = [parts.abandoned("not_requeueable")]
    job = await stage.adopt(parts.ACT)
    stage.reports(parts.ended(exit_code=1), parts.gone())
    report = await job.report()

    assert stage.resubmissions == []
    assert (report.resubmitted_as, report.handed_on) == ("", None)


async def test_what_a_person_keeps_is_not_submitted(stage: Stage) -> None:
    stage.outcomes = [parts.abandoned("person_intervened")]
    job = await stage.adopt(parts.RESUBMIT)
    stage.reports(parts.ended(exit_code=1), parts.gone())
    await job.report()

    assert stage.resubmissions == []


async def test_why_a_job_could_not_be_submitted_is_told_beside_why_it_was_not_requeued(stage: Stage) -> None:
    stage.outcomes = [parts.abandoned("not_requeueable")]
    stage.submitted = parts.not_submitted("sbatch submits for another user (ana) only as root")
    job = await stage.adopt(parts.RESUBMIT)
    stage.reports(parts.ended(exit_code=1), parts.gone())
    report = await job.report()

    assert report.resubmitted_as == ""
    [told] = stage.told(AuditKind.RECONCILED)
    assert told == (
        "abandoned, not requeueable (not submitted anew: sbatch submits for another user (ana) only as root)"
    )


def inherited(failures: int, *, lost: bool = False) -> Inherited:
    past = PastAttempt(
        attempt=0,
        category=Category.USER_CODE,
        cause="python_exception",
        fingerprint="KeyError@train.py:10",
        action=Action.RESTART,
    )
    exclusion = Exclusion(node="node09", by="policy", reason="GPU", since=parts.SUBMITTED_AT)
    handed = Handed(past=(past,) * failures, exclusions=(exclusion,))
    return Inherited(handed=handed, of="12", resubmissions=1, lost=lost)


async def test_a_budget_that_the_line_has_used_up_stops_the_job_in_its_place(stage: Stage) -> None:
    stage.verdict = parts.user_error()
    start = parts.start(stage.key("88"), parts.RESUBMIT)
    job = await stage.start(start.model_copy(update={"inherited": inherited(1)}))
    stage.terms = parts.RESUBMIT
    stage.reports(parts.ended(exit_code=1))
    report = await job.report()

    assert report.closed.startswith("stopped by policy: the same failure came back")
    assert stage.told(AuditKind.ADOPTED) == [
        "watching attempt 0 in mode act; resubmission 1, in place of job 12, with its 1 attempts"
    ]


async def test_exclusions_of_the_line_are_ours_and_not_the_users_and_the_next_resubmission_counts_on(
    stage: Stage,
) -> None:
    start = parts.start(stage.key("89"), parts.RESUBMIT)
    job = await stage.start(start.model_copy(update={"inherited": inherited(1)}))
    state = await job.state()
    stage.terms = parts.RESUBMIT
    stage.outcomes = [parts.abandoned("not_requeueable")]
    stage.reports(parts.ended(exit_code=1))
    await job.report()

    assert state.user_excluded == ()
    assert [exclusion.node for exclusion in state.exclusions] == ["node09"]
    assert [order.count for order in stage.resubmissions] == [2]


async def test_a_job_whose_line_is_not_known_any_more_is_not_submitted_again(stage: Stage) -> None:
    start = parts.start(stage.key("90"), parts.RESUBMIT)
    job = await stage.start(start.model_copy(update={"inherited": inherited(0, lost=True)}))
    stage.terms = parts.RESUBMIT
    stage.outcomes = [parts.abandoned("not_requeueable")]
    stage.reports(parts.ended(exit_code=1), parts.gone())
    await job.report()

    assert stage.resubmissions == []
    assert "how its predecessors fared is not known" in stage.told(AuditKind.RECONCILED)[0]
