"""One attempt under watch: what is reported, when, and how often."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

from activities.chains import Stranded
from activities.findings import (
    DependentsStranded,
    Ended,
    Faulted,
    FaultSurvived,
    Gone,
    LeaseOver,
    Reached,
    Requeued,
)
from activities.scheduler.dependency import read_dependency
from activities.scheduler.protocol import Hold, JobFlag, JobState
from recovery.detection.settings import DetectionSettings
from recovery.model import MilestoneKind
from recovery.optin import OptIn
from tests.watch.conftest import StartWatch
from tests.watch.scripted import JOB_ID, NODES, XID, JobUnderWatch, iteration, loaded, saved, submitted_at

MAX_HEARTBEAT_BYTES = 8_000


async def test_a_healthy_job_reports_nothing_until_its_lease_is_over(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(lease_s=1.2)
    await job.trains(1, 8)
    finding = await watch.finding()
    assert isinstance(finding, LeaseOver)
    assert (finding.progress.first_iteration, finding.progress.iteration) == (1, 8)


async def test_what_a_heartbeat_keeps_stays_small(job: JobUnderWatch, start: StartWatch) -> None:
    job.log.rename(deep := job.log.with_name("d" * 200))
    job.shows(stdout=str(deep), stderr=str(deep.with_suffix(".err")))
    await job.seen_by_the_poller()
    deep.with_suffix(".err").write_text("")
    with deep.open("a") as file:
        for n in range(400):
            file.write(f"{'x' * 500} password=hunter{n}\n{XID} {'é' * 3000}\n{iteration(n + 1)}\n{saved(n + 1)}\n")
    reported = await start(settings=DetectionSettings()).finding()
    watch = start(job.order_after(job.order(), reported), settings=DetectionSettings())
    await watch.heard(lambda memory: memory.monitor.progress.iteration == 400)
    kept = json.dumps(watch.heartbeats[-1])
    assert len(kept) < MAX_HEARTBEAT_BYTES
    assert "hunter" not in kept


async def test_a_fatal_line_is_reported_once_and_confirmed_after_its_grace(
    job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    await job.trains(1, 5)
    job.writes(XID)
    first = await watch.finding()
    assert isinstance(first, Faulted)
    assert not first.certain
    assert "fallen off the bus" in first.evidence[0].text
    assert first.evidence[0].line == 6
    second = await start(job.order_after(job.order(), first)).finding()
    assert isinstance(second, Faulted)
    assert second.certain
    assert await start(job.order_after(job.order(), second)).silent_for(0.8)


async def test_a_fault_that_training_outlives_is_withdrawn(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    await job.trains(1, 5)
    job.writes(XID)
    order = job.order_after(job.order(), await watch.finding())
    watch = start(order)
    await job.trains(6, 14)
    survived = await watch.finding()
    assert isinstance(survived, FaultSurvived)
    watch = start(job.order_after(job.order(), survived))
    job.writes(XID)
    await job.trains(15, 24)
    assert await watch.silent_for(0.1)
    job.writes(XID)
    relapse = await watch.finding()
    assert isinstance(relapse, Faulted)
    assert relapse.certain


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED, JobState.CANCELLED, JobState.OUT_OF_MEMORY])
async def test_the_end_of_an_attempt_is_reported_after_its_last_lines(
    state: JobState, job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    await job.trains(1, 3)
    job.shows(state, exit_code=7)
    await job.seen_by_the_poller()
    job.writes(iteration(4), saved(4))
    finding = await watch.finding()
    assert isinstance(finding, Ended)
    assert (finding.record.state, finding.record.exit_code) == (state, 7)
    assert (finding.progress.iteration, finding.progress.checkpoint) == (4, 4)


async def test_the_last_line_counts_though_a_dying_process_did_not_end_it(
    job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    await job.trains(1, 3)
    with job.log.open("a") as file:
        file.write(saved(3))
    job.shows(JobState.FAILED)
    assert (await watch.finding()).progress.checkpoint == 3


async def test_a_process_that_writes_on_for_ever_does_not_keep_the_end_from_being_reported(
    job: JobUnderWatch, start: StartWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.logs.attempt.MOST_DRAIN_S", 0.5)
    watch = start()
    await job.trains(1, 2)
    job.shows(JobState.FAILED)
    chatter = asyncio.create_task(job.trains(3, 1_000, every_s=0.005))
    assert isinstance(await watch.finding(timeout_s=3), Ended)
    chatter.cancel()


async def test_an_end_that_was_seen_only_afterwards_is_reported_with_its_log(
    job: JobUnderWatch, start: StartWatch
) -> None:
    job.writes(iteration(1), saved(1), XID)
    job.shows(JobState.FAILED, exit_code=1)
    await job.seen_by_the_poller()
    finding = await start().finding()
    assert isinstance(finding, Ended)
    assert finding.progress.checkpoint == 1
    assert [line.text for line in finding.evidence] == [XID]


async def test_an_end_that_was_reported_is_not_reported_again(job: JobUnderWatch, start: StartWatch) -> None:
    job.shows(JobState.FAILED)
    ended = await start().finding()
    watch = start(job.order_after(job.order(), ended, ended=True))
    job.writes(XID)
    assert await watch.silent_for(0.4)
    job.shows(JobState.PENDING, 1, nodes=())
    assert isinstance(await watch.finding(), Requeued)


async def test_an_ended_job_that_leaves_the_list_is_gone(job: JobUnderWatch, start: StartWatch) -> None:
    job.shows(JobState.FAILED)
    ended = await start().finding()
    watch = start(job.order_after(job.order(), ended, ended=True))
    assert await watch.silent_for(0.2)
    del job.scheduler.listed[JOB_ID]
    assert isinstance(await watch.finding(), Gone)


async def test_a_requeue_by_others_is_reported_once_the_job_has_settled(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    await job.trains(1, 3)
    job.shows(JobState.PENDING, 1, flags=(JobFlag.COMPLETING,), submitted_at=submitted_at(0))
    job.writes(saved(3), "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-03-01T08:10:00 ***")
    assert await watch.silent_for(0.5)
    record = job.shows(JobState.PENDING, 1, nodes=(), reason="BeginTime")
    requeued = await watch.finding()
    assert isinstance(requeued, Requeued)
    assert (requeued.record, requeued.nodes) == (record, NODES)
    assert requeued.progress.checkpoint == 3

    following = start(job.order_of_next_attempt(requeued, 1, submitted_at=requeued.record.submitted_at))
    assert await following.silent_for(0.3)
    job.shows(JobState.RUNNING, 1, nodes=("node03",))
    job.writes(loaded(3), iteration(4))
    job.shows(JobState.FAILED, 1)
    ended = await following.finding()
    assert isinstance(ended, Ended)
    assert (ended.progress.resumed_from, ended.progress.first_iteration) == (3, 4)


async def test_a_state_that_is_not_told_while_a_job_goes_back_is_waited_out(
    job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    job.shows(JobState.UNKNOWN, 1, flags=(JobFlag.COMPLETING,), submitted_at=submitted_at(0))
    assert await watch.silent_for(0.3)
    job.shows(JobState.PENDING, 1, hold=Hold.REQUEUED, nodes=())
    assert isinstance(await watch.finding(), Requeued)


async def test_the_last_lines_before_a_requeue_count_though_no_worker_was_there(
    job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    await job.trains(1, 3)
    memory = await watch.heard(lambda memory: memory.monitor.progress.iteration == 3)
    await watch.stop()
    job.writes(iteration(4), saved(4))
    job.shows(JobState.PENDING, 1, nodes=())
    await job.seen_by_the_poller()
    requeued = await start(heartbeat=memory.model_dump(mode="json")).finding()
    assert isinstance(requeued, Requeued)
    assert requeued.nodes == NODES
    assert requeued.progress.checkpoint == 4


async def test_a_persons_hold_on_a_running_job_is_no_news(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    job.shows(JobState.RUNNING, hold=Hold.USER, reason="JobHeldUser")
    assert await watch.silent_for(0.4)


async def test_a_suspended_job_does_not_hang(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(job.order(optin=OptIn(hang_after_s=1)))
    await job.trains(1, 3)
    job.shows(JobState.SUSPENDED)
    assert await watch.silent_for(1.3)


async def test_the_start_after_a_recovery_is_reported_in_two_steps_each_once(
    job: JobUnderWatch, start: StartWatch
) -> None:
    record = job.shows(JobState.RUNNING, 1, nodes=("node03", "node04"), started_at=submitted_at(1))
    order = job.order(1, report_start=True)
    allocated = await start(order).finding()
    assert isinstance(allocated, Reached)
    assert (allocated.milestone.kind, allocated.milestone.attempt) == (MilestoneKind.ALLOCATED, 1)
    assert (allocated.milestone.at, allocated.nodes) == (record.started_at, ("node03", "node04"))

    order = job.order_after(order, allocated, allocated=True)
    watch = start(order)
    job.writes(loaded(30))
    assert await watch.silent_for(0.2)
    job.writes(iteration(31))
    resumed = await watch.finding()
    assert isinstance(resumed, Reached)
    assert resumed.milestone.kind is MilestoneKind.RESUMED
    assert resumed.milestone.detail == "iteration 31, from the checkpoint of iteration 30"

    watch = start(job.order_after(order, resumed, report_start=False))
    await job.trains(32, 34)
    assert await watch.silent_for(0.2)


async def test_training_that_shows_no_number_has_resumed_too(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(job.order(report_start=True, allocated=True))
    job.writes("{'loss': 2.1, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': 0.1}")
    resumed = await watch.finding()
    assert isinstance(resumed, Reached)
    assert resumed.milestone.kind is MilestoneKind.RESUMED


async def test_an_attempt_that_ends_before_it_resumed_is_reported_as_ended(
    job: JobUnderWatch, start: StartWatch
) -> None:
    job.shows(JobState.RUNNING, 1)
    watch = start(job.order(1, report_start=True, allocated=True))
    assert await watch.silent_for(0.2)
    job.shows(JobState.FAILED, 1)
    assert isinstance(await watch.finding(), Ended)


async def test_a_fatal_line_that_was_the_last_word_of_an_attempt_is_reported_as_its_end(
    job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    await job.trains(1, 3)
    job.scheduler.unlisted[JOB_ID] = job.record.model_copy(update={"state": JobState.FAILED, "exit_code": 1})
    job.writes(XID)
    ended = await watch.finding()
    assert isinstance(ended, Ended)
    assert (ended.record.exit_code, [line.text for line in ended.evidence]) == (1, [XID])


async def test_a_fatal_line_is_reported_though_the_scheduler_does_not_say_whether_the_attempt_goes_on(
    job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start()
    await job.trains(1, 3)
    job.scheduler.silent = True
    job.writes(XID)
    assert isinstance(await watch.finding(), Faulted)


async def test_who_waits_for_a_failed_job_in_vain_is_reported_once_and_from_a_later_reading(
    job: JobUnderWatch, start: StartWatch
) -> None:
    job.shows(JobState.FAILED)
    lost = read_dependency(f"afterok:{JOB_ID}(failed)")
    job.scheduler.listed["12"] = job.record.model_copy(
        update={"job_id": "12", "state": JobState.PENDING, "dependency": lost}
    )
    await job.seen_by_the_poller()
    order = job.order(ended=True, answered_at=datetime.now(UTC))
    reported = await start(order).finding()
    assert isinstance(reported, DependentsStranded)
    assert reported.stranded == Stranded(jobs=("12",), count=1)

    again = start(job.order_after(order, reported, stranded=reported.stranded))
    assert await again.silent_for(0.5)
    assert await start(job.order(ended=True)).silent_for(0.5), "nothing was answered yet"
