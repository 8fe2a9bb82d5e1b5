"""Weeks under guard: what a healthy job costs, and how a run goes on as a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from recovery.audit import AuditKind
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Job, Stage, eventually
from workflows.cluster import ClusterWatch
from workflows.options import WATCH_LEASE
from workflows.overrides import Request

EVENTS_A_DAY = 20


async def _days(stage: Stage, days: int) -> list[str]:
    """Watch a healthy job for so many days; return the events of its history."""
    job = await stage.adopt()
    leases = timedelta(days=days) // WATCH_LEASE
    stage.reports(*[scene for _ in range(leases) for scene in (WATCH_LEASE, parts.lease_over())], parts.completed())
    report = await job.report()
    adopted, completed = report.milestones
    assert completed.at - adopted.at >= timedelta(days=days)
    return await job.events()


async def test_a_healthy_job_adds_at_most_twenty_events_a_day(stage: Stage) -> None:
    one_day = await _days(stage, 1)
    eight_days = await _days(stage, 8)

    assert len(eight_days) - len(one_day) <= 7 * EVENTS_A_DAY
    assert eight_days.count("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES") == 2, "only what has changed is written"


async def _run_ids(job: Job) -> list[str]:
    query = f"WorkflowId = '{job.key.workflow_id}'"
    return [run.run_id async for run in job.stage.client.list_workflows(query)]


async def _new_run(stage: Stage, job: Job) -> None:
    """Let leases pass until the workflow has gone on in a new run."""
    first = (await job.handle.describe()).run_id
    async with asyncio.timeout(15):
        while (await job.handle.describe()).run_id == first:
            stage.reports(parts.lease_over())
            await stage.watched_on()


@pytest.mark.temporal
async def test_a_new_run_goes_on_where_the_last_one_stood(real_stage: Stage) -> None:
    stage = real_stage
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1, checkpoint=100))
    before = await job.until(lambda state: state.attempt == 1)
    await job.insists("exclude", by("ana", "it flaps", nodes=("node03",), request_id="r-1"))

    await _new_run(stage, job)
    after = await job.state()
    again = await job.insists("exclude", by("ana", "it flaps", nodes=("node03",), request_id="r-1"))
    stage.reports(parts.ended(exit_code=1), parts.completed())
    report = await job.report()

    assert (after.attempt, after.generation, after.past) == (before.attempt, before.generation, before.past)
    assert [exclusion.node for exclusion in after.exclusions] == ["node02", "node03"]
    assert stage.watches[-1].logs
    assert again.text == "exclude was accepted before"
    assert [order.advice.generation for order in stage.orders] == [1, 2]
    assert stage.told(AuditKind.ADOPTED) == ["watching attempt 0 in mode act"]
    assert report.milestones[0].kind.value == "adopted"


@pytest.mark.temporal
async def test_events_that_are_not_stored_yet_move_on_to_the_new_run(real_stage: Stage) -> None:
    stage = real_stage
    stage.trail.fails()
    job = await stage.adopt()
    await job.insists("exclude", by("ana", nodes=("node03",)))

    await _new_run(stage, job)
    assert stage.deliveries == []
    stage.trail.is_over()
    stage.reports(parts.completed())
    await job.report()

    numbers = [int(event.key.rpartition("/")[2]) for event in stage.audit]
    assert numbers == list(range(1, len(numbers) + 1))
    assert stage.told(AuditKind.OVERRIDE) == ["exclude node03"]


@pytest.mark.temporal
@pytest.mark.parametrize(("way", "least_runs"), [(Job.insists, 3), (Job.signals, 2)], ids=["updates", "signals"])
async def test_no_word_is_lost_while_runs_follow_each_other(
    real_stage: Stage, way: Callable[[Job, str, Request], Awaitable[object]], least_runs: int
) -> None:
    stage = real_stage
    job = await stage.adopt()
    nodes = [f"node{number:03}" for number in range(100, 140)]

    for first in range(0, len(nodes), 8):
        await asyncio.gather(
            *(way(job, "exclude", by("ana", nodes=(node,), request_id=node)) for node in nodes[first : first + 8])
        )
    state = await job.until(lambda state: not state.commands and len(state.exclusions) == len(nodes))
    stage.reports(parts.completed())
    await job.report()

    assert sorted(exclusion.node for exclusion in state.exclusions) == nodes
    assert sorted(stage.told(AuditKind.OVERRIDE)) == [f"exclude {node}" for node in nodes]
    assert len(await _run_ids(job)) >= least_runs


@pytest.mark.temporal
async def test_a_cluster_is_looked_after_lease_by_lease_and_run_by_run(real_stage: Stage) -> None:
    stage = real_stage
    handle = await stage.look_after_cluster()
    first = (await handle.describe()).run_id

    await eventually(lambda: len(stage.discoveries) == stage.discovery_leases)

    description = await handle.describe()
    assert description.run_id != first
    assert await handle.query(ClusterWatch.adopted) == 2 * (stage.discovery_leases - 1)
    assert {order.lease_s for order in stage.discoveries} == {60.0}
    assert {order.cluster for order in stage.discoveries} == {stage.cluster}
