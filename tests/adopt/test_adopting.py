"""One workflow for each job, whoever finds it and however often."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from activities.adopt import Adopter
from activities.scheduler.protocol import JobState
from tests.adopt.guarding import Guarding, seconds_ago

pytestmark = pytest.mark.temporal


async def test_a_job_has_one_workflow_however_many_adopt_it(guarding: Guarding) -> None:
    adopters = [Adopter(guarding.client, guarding.cluster, guarding.selection) for _ in range(8)]
    record = guarding.record()
    assert await asyncio.gather(*(guarding.adopt(record, adopter) for adopter in adopters)) == [True] * 8
    first = await guarding.run_id()
    assert await guarding.adopt(record)
    assert await guarding.run_id() == first
    start = await guarding.start_of()
    assert (start.record, start.job.submitted_at) == (record, record.submitted_at)
    assert start.terms == guarding.selection.terms


async def test_a_requeued_job_has_the_same_workflow(guarding: Guarding) -> None:
    await guarding.adopt(guarding.record())
    first = await guarding.run_id()
    assert await guarding.adopt(guarding.record(restart_count=1, submitted_at=seconds_ago(5)))
    assert await guarding.run_id() == first


async def test_a_job_that_was_dealt_with_is_not_adopted_again_while_it_is_listed(guarding: Guarding) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    first = await guarding.run_id()
    await guarding.close("7", record.submitted_at)
    assert await guarding.adopt(record.model_copy(update={"state": JobState.FAILED}))
    assert await guarding.run_id() == first
    assert not await guarding.is_guarded()


@pytest.mark.parametrize("ago_s", [0, 30], ids=["in the second of the close", "by a clock that is behind"])
async def test_a_job_that_a_person_requeues_after_the_close_is_adopted_again(ago_s: float, guarding: Guarding) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    first = await guarding.run_id()
    requeued_at = seconds_ago(ago_s)
    await guarding.close("7", record.submitted_at)
    assert await guarding.adopt(guarding.record(restart_count=1, submitted_at=requeued_at))
    assert await guarding.run_id() != first
    assert await guarding.is_guarded()
    assert (await guarding.start_of()).record.restart_count == 1


async def test_a_job_that_a_person_requeues_while_the_ended_guards_workflow_stays_gets_a_guard_at_once(
    guarding: Guarding,
) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    first = await guarding.run_id()
    await guarding.close_but_stay("7", record.submitted_at)
    assert not await guarding.adopt(record.model_copy(update={"state": JobState.FAILED}))
    assert await guarding.run_id() == first
    assert await guarding.is_guarded(), "nobody needs it to go"
    await guarding.until_adopted(guarding.record(restart_count=1, submitted_at=seconds_ago(0)))
    assert await guarding.run_id() != first
    assert await guarding.is_guarded()


async def test_a_job_whose_workflow_a_person_terminated_stays_without_until_it_is_requeued(guarding: Guarding) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    await guarding.client.get_workflow_handle(f"recovery/{guarding.cluster}/7").terminate("leave it alone")
    assert await guarding.adopt(record)
    assert not await guarding.is_guarded()
    assert await guarding.adopt(guarding.record(restart_count=1, submitted_at=seconds_ago(-2)))
    assert await guarding.is_guarded()


async def test_a_reused_job_id_waits_until_the_earlier_jobs_workflow_is_gone(guarding: Guarding) -> None:
    old, new = guarding.record(submitted_at=seconds_ago(86_400)), guarding.record(name="another")
    await guarding.adopt(old)
    first = await guarding.run_id()
    assert not await guarding.adopt(new)
    assert await guarding.run_id() == first
    await guarding.close("7", old.submitted_at)
    assert await guarding.adopt(new)
    assert (await guarding.start_of()).record.name == "another"
    assert await guarding.is_guarded()


async def test_names_from_outside_are_shown_short_and_plain(guarding: Guarding) -> None:
    name = "*bold*\n[a](http://b)\x1b[31m`x`<script>" + "🔥" * 100
    long_cluster = guarding.selection.model_copy(update={"cluster": "c" * 100})
    adopter = Adopter(guarding.client, guarding.cluster, long_cluster)
    assert await guarding.adopt(guarding.record("123456789_123456789", name=name, user="u" * 500), adopter)
    shown = dataclasses.replace(guarding, cluster="c" * 100)
    description = await shown.described("123456789_123456789")
    assert description is not None
    summary = await description.static_summary()
    assert summary is not None
    assert summary.isprintable()
    assert not set("*[]`<>#|_") & set(summary.split(" · ")[0])
    assert len(await description.static_details() or "") < 300
