"""Jobs that wait for a failed one are told of, and never touched."""

from __future__ import annotations

from activities.chains import Stranded
from recovery.audit import AuditKind
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Stage

WAITING = Stranded(jobs=("12", "13"), count=2)


async def test_who_waits_for_a_job_that_was_stopped_is_on_record(stage: Stage) -> None:
    stage.stranded = WAITING
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=93))
    await job.report()

    assert (await job.state()).stranded == WAITING
    assert stage.told(AuditKind.WARNED) == ["dependents 12, 13 can never start: they need this job to succeed"]
    assert len(stage.chains) == 1


async def test_who_waits_for_a_hanging_job_that_a_person_stopped_is_on_record(stage: Stage) -> None:
    stage.stranded = WAITING
    job = await stage.adopt()
    await job.says("stop", by("ana", "wrong data"))
    await job.report()

    assert len(stage.chains) == 1
    assert len(stage.told(AuditKind.WARNED)) == 1


async def test_who_was_given_up_by_slurm_though_the_job_comes_back_is_told_once_with_the_remedy(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.stranded(WAITING), parts.allocated(), parts.completed())
    await job.report()

    [told] = stage.told(AuditKind.WARNED)
    assert told.startswith("dependents 12, 13 can never start, also when this job comes back")
    assert f"`scontrol update JobId=12 Dependency=afterok:{job.key.job_id}`" in told
    before, after, *_ = [watch for watch in stage.watches if watch.answered_at]
    assert (before.stranded, after.stranded) == (Stranded(), WAITING), "only what changes is reported again"
    assert stage.chains == []


async def test_a_job_that_nobody_waits_for_says_nothing(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=93))
    await job.report()

    assert stage.told(AuditKind.WARNED) == []


async def test_nobody_is_looked_for_where_a_job_completes_or_its_owner_cancels_it(stage: Stage) -> None:
    job = await stage.adopt()
    stage.reports(parts.completed())
    await job.report()

    assert stage.chains == []
