"""A cluster's workflow on a real server: the governor that all jobs ask, the pause switch, one message for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.blindness import Blindness, blind
from activities.governor import GovernorDesk
from activities.sources import SourceWatch
from activities.suspicions import ClusterSuspicions
from recovery.audit import AuditKind
from recovery.governor import GovernorSettings, Granted, GrantRequest, Limit, Ruling, Tripped
from recovery.notices import NoticeKind
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import PATIENCE_S, Job, Stage, eventually
from workflows.cluster import ClusterWatch
from workflows.cluster_state import ClusterStanding
from workflows.overrides import Answer, Request
from workflows.state import Phase

pytestmark = pytest.mark.temporal

Cluster = WorkflowHandle[ClusterWatch, None]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in ("SOONEST", "PAUSED_AGAIN", "NO_ANSWER_AGAIN"):
        monkeypatch.setattr(f"workflows.governing.{wait}", timedelta(seconds=0.3))
    monkeypatch.setattr("recovery.notices.QUIET", timedelta(seconds=3))


async def _governed(stage: Stage, **limits: float) -> Cluster:
    """The cluster's workflow, which the stage's jobs ask from now on."""
    stage.discovery_leases = 1
    stage.desk = GovernorDesk(stage.client, stage.cluster, GovernorSettings.model_validate(limits))
    return await stage.look_after_cluster()


async def _says(cluster: Cluster, verb: str, request: Request) -> str:
    while True:
        try:
            answer: Answer = await cluster.execute_update(verb, request, result_type=Answer)
        except RPCError as error:
            if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                raise
        else:
            return answer.text


async def _ask(stage: Stage, key: str) -> Ruling:
    assert stage.desk is not None
    return await stage.desk.ask_governor(GrantRequest(key=key, excluded_until=datetime.now(UTC)))


async def _standing(cluster: Cluster) -> ClusterStanding:
    return await cluster.query(ClusterWatch.standing)


async def _fail_together(stage: Stage, count: int) -> list[Job]:
    jobs = [await stage.adopt() for _ in range(count)]
    await eventually(lambda: len(stage.watches) == count)
    stage.reports(*[parts.ended(exit_code=1)] * count)
    return jobs


async def test_jobs_that_fail_together_are_all_advised_and_acted_on_within_the_limits(real_stage: Stage) -> None:
    stage = real_stage
    cluster = await _governed(stage, restarts=5)

    jobs = await _fail_together(stage, 8)
    await eventually(lambda: len([event for event in stage.audit if event.kind is AuditKind.ADVISED]) == 8)
    await eventually(lambda: len(_kept_back(stage)) == 3)
    await eventually(lambda: len(stage.orders) == 5)
    assert (await _standing(cluster)).tripped is not None
    await asyncio.sleep(1)
    assert len(stage.orders) == 5
    # The operator raises the limit and restarts the worker: what waits goes on.
    stage.desk = GovernorDesk(stage.client, stage.cluster, GovernorSettings(restarts=20))
    for job in jobs:
        await job.says("resume", by("ana"))
        await job.until(lambda state: state.attempt == 1)

    assert len(stage.orders) == 8
    [tripped] = [notice for notice in stage.notices if notice.kind is NoticeKind.GOVERNOR_TRIPPED]
    assert "5 restarts in the last 10 min, the limit is 5" in tripped.text


def _kept_back(stage: Stage) -> set[str]:
    return {event.job.job_id for event in stage.audit if event.kind is AuditKind.KEPT_BACK}


async def test_a_storm_is_told_in_a_message_or_two_after_the_first(real_stage: Stage) -> None:
    stage = real_stage
    await _governed(stage)

    jobs = await _fail_together(stage, 12)
    await eventually(lambda: sum(notice.failures for notice in stage.notices) == 12)

    assert 1 <= len(stage.notices) <= 3
    for notice in stage.notices:
        assert notice.partitions == {"gpu": notice.failures}
        assert set(notice.jobs) <= {str(job.key) for job in jobs}


async def test_a_webhook_that_takes_nothing_holds_nothing_up(real_stage: Stage) -> None:
    stage = real_stage
    stage.webhook.is_silent()
    cluster = await _governed(stage)
    await _says(cluster, "pause", by("ana"))
    await _says(cluster, "resume", by("ana"))

    [job] = await _fail_together(stage, 1)
    await job.until(lambda state: state.attempt == 1)

    assert stage.notices == []
    stage.webhook.is_over()
    await eventually(lambda: len(stage.notices) == 3)


async def test_the_sources_that_cannot_be_seen_are_told_as_they_change(real_stage: Stage) -> None:
    cluster = await _governed(real_stage)
    source = _Source()
    watch = asyncio.create_task(SourceWatch(real_stage.client, real_stage.cluster, (source,)).run())
    try:
        source.blindnesses = (blind("prometheus", datetime.now(UTC), "no answer"),)
        await _until_standing(cluster, lambda standing: standing.blind == source.blindnesses)
        source.blindnesses = ()
        await _until_standing(cluster, lambda standing: standing.blind == ())
    finally:
        watch.cancel()


class _Source:
    def __init__(self) -> None:
        self.blindnesses: tuple[Blindness, ...] = ()


async def test_what_failed_jobs_say_against_nodes_is_known_to_the_next_one(real_stage: Stage) -> None:
    stage = real_stage
    await _governed(stage)
    reader = ClusterSuspicions(stage.client, stage.cluster)
    assert await reader.suspicions() == ()

    stage.verdict = parts.bad_node()
    jobs = await _fail_together(stage, 2)
    for job in jobs:
        await job.until(lambda state: state.attempt == 1)

    known = await ClusterSuspicions(stage.client, stage.cluster).suspicions()
    assert {(each.node, each.job, each.weight) for each in known} == {("node02", str(job.key), 1.0) for job in jobs}
    assert await reader.suspicions() == (), "what was asked a moment ago is not asked again"


async def test_a_repaired_node_is_under_no_suspicion_any_more(real_stage: Stage) -> None:
    stage = real_stage
    cluster = await _governed(stage)
    stage.verdict = parts.bad_node()
    [job] = await _fail_together(stage, 1)
    await job.until(lambda state: state.attempt == 1)
    assert [each.node for each in (await _standing(cluster)).suspicions] == ["node02"]

    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await _says(cluster, "readmit", by("ana"))
    assert await _says(cluster, "readmit", by("ana", "new GPU", nodes=("node02",))) == "readmit accepted"

    assert "needs at least one node" in str(refused.value.cause)
    assert (await _standing(cluster)).suspicions == ()
    await eventually(lambda: any(notice.kind is NoticeKind.READMITTED for notice in stage.notices))


async def test_without_a_clusters_workflow_no_node_is_under_suspicion(real_stage: Stage) -> None:
    assert await ClusterSuspicions(real_stage.client, "elsewhere").suspicions() == ()


async def _until_standing(cluster: Cluster, holds: Callable[[ClusterStanding], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds(await _standing(cluster)):
            await asyncio.sleep(0.1)


async def test_a_paused_cluster_keeps_every_act_back_until_it_is_resumed(real_stage: Stage) -> None:
    stage = real_stage
    cluster = await _governed(stage)
    assert await _says(cluster, "pause", by("ana", "the filesystem is away")) == "pause accepted"

    jobs = await _fail_together(stage, 3)
    for job in jobs:
        state = await job.until(lambda state: state.phase is Phase.KEPT_BACK)
        assert state.kept_back is not None
        assert state.kept_back.says == "the cluster is paused by ana: the filesystem is away"
    assert stage.orders == []
    assert (await _standing(cluster)).pause is not None
    assert await _says(cluster, "resume", by("ben", "it is back")) == "resume accepted"

    for job in jobs:
        await job.until(lambda state: state.attempt == 1)
    told = [notice.text for notice in stage.notices if notice.kind is not NoticeKind.FAILURES]
    assert told == [
        f"cluster {stage.cluster} was paused by ana: the filesystem is away",
        f"cluster {stage.cluster} was resumed by ben: it is back",
    ]


async def test_a_pause_that_is_there_and_a_resume_of_nothing_are_refused(real_stage: Stage) -> None:
    cluster = await _governed(real_stage)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await _says(cluster, "resume", by("ana"))
    assert "the cluster is not paused" in str(refused.value.cause)

    await cluster.signal("pause", by("ana", "maintenance"))
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await _says(cluster, "pause", by("ben"))
    assert "the cluster is paused by ana: maintenance already" in str(refused.value.cause)
    await cluster.signal("resume", by("ben"))
    assert (await _standing(cluster)).pause is None


async def test_what_was_granted_and_who_paused_move_on_to_the_new_run(real_stage: Stage) -> None:
    stage = real_stage
    cluster = await _governed(stage, restarts=3)
    assert [await _ask(stage, f"a#{number}") for number in range(3)] == [Granted()] * 3
    await _says(cluster, "pause", by("ana", "maintenance", request_id="r-1"))
    first = (await cluster.describe()).run_id

    async with asyncio.timeout(PATIENCE_S):
        while (await cluster.describe()).run_id == first:
            await cluster.signal("pause", by("ben"))
            await asyncio.sleep(0.02)

    assert await _says(cluster, "pause", by("ana", request_id="r-1")) == "pause was accepted before"
    standing = await _standing(cluster)
    assert standing.pause is not None
    assert (standing.pause.who, standing.restarts) == ("ana", 3)
    await _says(cluster, "resume", by("ana"))
    assert await _ask(stage, "a#1") == Granted()
    fourth = await _ask(stage, "a#3")
    assert isinstance(fourth, Tripped)
    assert fourth.limit is Limit.RESTARTS


async def test_many_that_ask_at_once_cost_a_few_updates(real_stage: Stage) -> None:
    stage = real_stage
    cluster = await _governed(stage, restarts=60)

    rulings = await asyncio.gather(*(_ask(stage, f"a#{number}") for number in range(100)))

    assert [isinstance(ruling, Granted) for ruling in rulings].count(True) == 60
    events = [event.event_type async for event in cluster.fetch_history_events()]
    assert len(events) < 50
    assert (await _standing(cluster)).restarts == 60


async def test_people_hear_of_a_failure_whose_question_gets_no_answer(real_stage: Stage) -> None:
    stage = real_stage
    await _governed(stage)
    stage.governor.gives_up()

    [job] = await _fail_together(stage, 1)

    await eventually(lambda: bool(stage.notices))
    assert [notice.jobs for notice in stage.notices] == [(str(job.key),)]
