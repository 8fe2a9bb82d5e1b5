"""Fail open on a real Slurm cluster: everything of relight's is dead but the watchdog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.audit import AuditTrail
from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.marker import Account, Marker, read_marker, write_marker
from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.rounds import Outcome
from activities.scheduler.watchdog import Watchdog
from recovery.audit import AuditKind
from recovery.model import JobKey, Mode
from tests.embedded.places import open_directory
from tests.protocol.parts import an_advice
from tests.slurm.cluster import SlurmCluster
from tests.watchdog.parts import Recorded
from tests.watchdog.process import ACT, DEADLINE_S, INTERVAL_S, configure, once, running_watchdog
from workers.embedded.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

SHORT = timedelta(seconds=3)
LOOK_EVERY_S = 0.5
RUNS = "echo up; sleep 600"
LONG_AGO = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def scheduler(slurm: SlurmCluster) -> SlurmCli:
    return SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)))


@pytest.fixture
async def left_held(slurm: SlurmCluster, scheduler: SlurmCli) -> AsyncIterator[Callable[..., Any]]:
    """Makes jobs as a worker leaves them that is killed between hold and release; ends them afterwards."""
    made: list[str] = []

    async def make(*options: str, mark: bool = True) -> str:
        job_id = slurm.sbatch(RUNS, *options)
        made.append(job_id)
        record = await until_up(slurm, scheduler, job_id)
        job = JobKey(cluster="alpha", job_id=job_id, submitted_at=record.submitted_at)
        if mark:
            marker = Marker(holds=an_advice(job=job).key, since=datetime.now(UTC), why="a GPU is gone")
            await scheduler.constrain(job_id, admin_comment=write_marker("", marker))
        await scheduler.requeue_hold(job_id)
        await until(scheduler, job_id, lambda job: job.hold is Hold.REQUEUED and not job.flags)
        await scheduler.constrain(job_id, exclude=("node03",))
        await scheduler.start_now(job_id)
        return job_id

    yield make
    for job_id in made:
        await scheduler.cancel(job_id)


async def until(
    scheduler: SlurmCli, job_id: str, holds: Callable[[JobRecord], bool], timeout_s: float = 60
) -> JobRecord:
    deadline = time.monotonic() + timeout_s
    while not holds(job := await scheduler.job(job_id)):
        assert time.monotonic() < deadline, job
        await asyncio.sleep(0.1)
    return job


async def until_up(slurm: SlurmCluster, scheduler: SlurmCli, job_id: str) -> JobRecord:
    """Wait until the job's script runs. Slurm may charge the next attempt with the end of one that was requeued while
    it was being launched."""
    record = await until(scheduler, job_id, lambda job: job.state is JobState.RUNNING)
    output = Path(record.stdout)
    await slurm.wait_for(lambda: output.exists() and "up" in output.read_text(), 30, f"job {job_id} is up")
    await asyncio.sleep(1)
    return record


def a_watchdog(scheduler: SlurmCli, recorded: Recorded, mode: Mode = Mode.ACT) -> Watchdog:
    return Watchdog(scheduler, recorded.record, cluster="alpha", mode=mode, deadline=SHORT)


async def look_for(watchdog: Watchdog, seconds: float) -> dict[str, set[Outcome]]:
    """Look once per interval and return everything that became of each job."""
    found: dict[str, set[Outcome]] = {}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for seen in (await watchdog.look()).seen:
            found.setdefault(seen.job_id, set()).add(seen.outcome)
        await asyncio.sleep(LOOK_EVERY_S)
    return found


async def test_a_job_left_held_is_released_in_time_and_runs_again_and_postgresql_hears_of_it_later(
    slurm: SlurmCluster, scheduler: SlurmCli, left_held: Callable[..., Any], tmp_path: Path
) -> None:
    real = {"kind": "cli", "slurm_conf": str(slurm.conf)}
    config = configure(tmp_path, real, ACT, dsn="postgresql://relight@127.0.0.1:1/relight")
    with running_watchdog(config):
        job_id = await left_held()
        held_at = time.monotonic()
        record = await until(scheduler, job_id, lambda job: job.hold is Hold.NONE)
        held_for_s = time.monotonic() - held_at
        assert held_for_s <= DEADLINE_S + INTERVAL_S + 1, (tmp_path / "watchdog.log").read_text()
        record = await until(scheduler, job_id, lambda job: job.state is JobState.RUNNING)
        assert record.restart_count == 1
        assert record.excluded_nodes == ("node03",)
        await until(scheduler, job_id, lambda job: isinstance(read_marker(job.admin_comment), Account))
    with open_directory() as directory:
        async with EmbeddedPostgres(directory / "postgres") as postgres:
            configure(tmp_path, real, ACT, dsn=postgres.dsn)
            assert (await once(config)).returncode == 0
            trail = AuditTrail(postgres.dsn)
            try:
                events = (await trail.events_of_job("alpha", job_id)).events
            finally:
                await trail.close()
    assert [event.kind for event in events] == [AuditKind.ORDERED, AuditKind.ACTED, AuditKind.RECONCILED]


async def test_a_persons_hold_is_never_released_and_observe_mode_releases_none(
    slurm: SlurmCluster, scheduler: SlurmCli, left_held: Callable[..., Any]
) -> None:
    ours, upon_ours, unmarked = await left_held(), await left_held(), await left_held(mark=False)
    slurm.run("scontrol", "hold", upon_ours)
    by_themselves = [slurm.sbatch(RUNS, "--hold"), slurm.sbatch(RUNS, "--hold")]
    slurm.run("scontrol", "hold", by_themselves[1])
    for job_id in by_themselves:
        key = an_advice(job=JobKey(cluster="alpha", job_id=job_id, submitted_at=LONG_AGO)).key
        await scheduler.constrain(job_id, admin_comment=write_marker("", Marker(holds=key, since=LONG_AGO)))
    theirs = [upon_ours, unmarked, *by_themselves]
    before = [await scheduler.job(job_id) for job_id in (ours, *theirs)]
    recorded = Recorded()

    observed = await look_for(a_watchdog(scheduler, recorded, Mode.OBSERVE), SHORT.total_seconds() + 2)
    assert Outcome.WOULD_RELEASE in observed[ours]
    assert recorded.kinds == [AuditKind.ADVISED]
    assert [await scheduler.job(job_id) for job_id in (ours, *theirs)] == before

    acted = await look_for(a_watchdog(scheduler, recorded), SHORT.total_seconds() + 2)
    assert acted.pop(ours) == {Outcome.RELEASED}
    assert acted == {job_id: {Outcome.LEFT} for job_id in (upon_ours, *by_themselves)}
    assert [await scheduler.job(job_id) for job_id in theirs] == before[1:]
    for job_id in by_themselves:
        await scheduler.cancel(job_id)


async def test_a_person_who_requeues_and_holds_what_was_released_is_left_alone_though_our_mark_stayed(
    slurm: SlurmCluster, scheduler: SlurmCli, left_held: Callable[..., Any]
) -> None:
    job_id = await left_held()
    await scheduler.release(job_id)
    await until_up(slurm, scheduler, job_id)
    await scheduler.requeue_hold(job_id)
    held = await until(scheduler, job_id, lambda job: job.hold is Hold.REQUEUED and not job.flags)
    assert isinstance(read_marker(held.admin_comment), Marker)
    acted = await look_for(a_watchdog(scheduler, Recorded()), SHORT.total_seconds() + 2)
    assert acted[job_id] == {Outcome.LEFT}
    assert await scheduler.job(job_id) == held


async def test_while_slurmctld_is_dead_nothing_happens_and_afterwards_the_job_is_released(
    slurm: SlurmCluster, scheduler: SlurmCli, left_held: Callable[..., Any]
) -> None:
    job_id = await left_held()
    await asyncio.sleep(6)  # the controller saves its state every five seconds
    watchdog = a_watchdog(scheduler, Recorded())
    slurm.kill_slurmctld()
    try:
        assert (await watchdog.look()).silence
    finally:
        slurm.restart_slurmctld()
    acted = await look_for(watchdog, SHORT.total_seconds() + 2)
    assert Outcome.RELEASED in acted[job_id]
    await until(scheduler, job_id, lambda job: job.state is JobState.RUNNING)
