"""On a real cluster the watchdog finishes what a worker left that was killed while it submitted jobs anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.lineage import PROMPT, read_lineage
from activities.scheduler.marker import Account, PassedOver, Replaced, read_marker
from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.resubmission import ResubmitOrder
from activities.scheduler.resubmit import Resubmitter
from activities.scheduler.rounds import Outcome
from activities.scheduler.submission import Submission
from recovery.model import Disposition, JobId, JobKey, Mode, Reconciliation
from recovery.optin import OptIn
from tests.protocol.parts import an_advice
from tests.slurm.cluster import SlurmCluster
from tests.watchdog.parts import Recorded
from tests.watchdog.process import ACT, configure, running_watchdog
from tests.watchdog.test_real_cluster import SHORT, a_watchdog, look_for, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

SCRIPT = """#!/bin/bash
echo up
[ "$1" = fails ] && [ ! -e "tried-$SLURM_JOB_NAME" ] && touch "tried-$SLURM_JOB_NAME" && exit 3
sleep 600
"""
OPTIONS = ("--uid=games", "--gid=games", "--no-requeue", "--nodes=1", '--comment={"relight":{"mode":"act"}}')


class Dying(SlurmCli):
    """The scheduler of a worker that is killed as soon as the call that `dies_after` names has been answered."""

    dies_after = "submit"

    async def submit(self, submission: Submission) -> JobId:
        job_id = await super().submit(submission)
        self._die("submit")
        return job_id

    async def cancel(self, job_id: JobId) -> None:
        await super().cancel(job_id)
        self._die("cancel")

    def _die(self, verb: str) -> None:
        task = asyncio.current_task()
        if verb == self.dies_after and task is not None:
            task.cancel()


def scheduler_of(slurm: SlurmCluster, kind: type[SlurmCli] = SlurmCli) -> SlurmCli:
    return kind(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)), account="root")


async def an_order(slurm: SlurmCluster, name: str, how: str, then: Callable[[JobRecord], bool]) -> ResubmitOrder:
    """Submit a job, wait until it is as it should be, and return the order to submit it anew without node03."""
    work = slurm.directory / "work"
    work.chmod(0o777)
    script = work / f"{name}.sh"
    script.write_text(SCRIPT)
    old = slurm.run("sbatch", "--parsable", f"--job-name={name}", *OPTIONS, str(script), how).strip()
    record = await until(scheduler_of(slurm), old, then)
    now = datetime.now(UTC)
    job = JobKey(cluster="alpha", job_id=old, submitted_at=record.submitted_at)
    advice = an_advice(job=job, advised_at=now, expires_at=now + timedelta(minutes=15))
    return ResubmitOrder(advice=advice, job=record, optin=OptIn(mode=Mode.ACT), count=1, ordered_at=now)


async def is_killed(slurm: SlurmCluster, order: ResubmitOrder, dies_after: str = "submit") -> JobRecord:
    """Carry the order out by a worker that is killed, and return the new job as it left it: held."""
    scheduler = scheduler_of(slurm, Dying)
    scheduler.dies_after = dies_after  # type: ignore[attr-defined]
    with suppress(asyncio.CancelledError):
        await asyncio.create_task(ActivityEnvironment().run(Resubmitter(scheduler).submit_anew, order))
    [new] = await submitted_for(scheduler, order)
    assert (new.state, new.hold, new.user) == (JobState.PENDING, Hold.USER, "games")
    return new


async def submitted_for(scheduler: SlurmCli, order: ResubmitOrder) -> list[JobRecord]:
    jobs = (await scheduler.jobs()).jobs
    lines = [(job, read_lineage(job.comment)) for job in jobs]
    return [job for job, lineage in lines if lineage is not None and lineage.order == order.advice.key]


def failed(job: JobRecord) -> bool:
    return job.state is JobState.FAILED and not job.flags


def runs(job: JobRecord) -> bool:
    return job.state is JobState.RUNNING and Path(job.stdout).exists()


async def test_what_a_killed_worker_submitted_is_released_in_time_and_once_and_an_owners_cancel_wins(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    scheduler = scheduler_of(slurm)
    config = configure(tmp_path, {"kind": "cli", "slurm_conf": str(slurm.conf)}, ACT)
    ended = await an_order(slurm, "ended", "fails", failed)
    hangs = await an_order(slurm, "hangs", "hangs", runs)
    cancelled = await an_order(slurm, "cancelled", "hangs", runs)
    with running_watchdog(config):
        of_ended = await is_killed(slurm, ended)
        of_hanging = await is_killed(slurm, hangs, dies_after="cancel")
        of_cancelled = await is_killed(slurm, cancelled)
        slurm.run("scancel", cancelled.job.job_id)

        for new in (of_ended, of_hanging):
            await until(scheduler, new.job_id, lambda job: job.hold is Hold.NONE)
            await until(scheduler, new.job_id, lambda job: isinstance(read_marker(job.admin_comment), Account))
        record = await until(scheduler, of_ended.job_id, runs)
        await until(scheduler, of_hanging.job_id, runs)
    assert "node03" in record.excluded_nodes
    old = await scheduler.job(hangs.job.job_id)
    assert old.state is JobState.CANCELLED
    assert isinstance(read_marker(old.admin_comment), Replaced)
    kept = await scheduler.job(of_cancelled.job_id)
    assert kept.hold is Hold.USER
    assert isinstance(read_marker(kept.admin_comment), PassedOver)

    for order in (ended, hangs):
        came_to = await ActivityEnvironment().run(Resubmitter(scheduler).submit_anew, order)
        assert isinstance(came_to, Reconciliation)
        assert (came_to.disposition, came_to.reason) == (Disposition.CONVERGED, "desired_state_observed")
        assert len(await submitted_for(scheduler, order)) == 1

    await a_copy_by_hand_stays_held(slurm, record)
    for job_id in (of_ended.job_id, of_hanging.job_id, of_cancelled.job_id):
        await scheduler.cancel(job_id)


async def a_copy_by_hand_stays_held(slurm: SlurmCluster, new: JobRecord) -> None:
    """Its owner submits it once more, with the same comment and held, once it is too late for one of relight's."""
    lineage = read_lineage(new.comment)
    assert lineage is not None
    late = lineage.since + PROMPT + timedelta(seconds=2) - datetime.now(UTC)
    await asyncio.sleep(max(0.0, late.total_seconds()))
    comment = f"--comment={json.dumps(json.loads(new.comment))}"
    copy = slurm.sbatch("sleep 600", "--uid=games", "--gid=games", "--hold", comment)
    scheduler = scheduler_of(slurm)
    acted = await look_for(a_watchdog(scheduler, Recorded()), SHORT.total_seconds() + 2)
    assert acted[copy] == {Outcome.LEFT}
    held = await scheduler.job(copy)
    assert (held.hold, held.admin_comment) == (Hold.USER, "")
    await scheduler.cancel(copy)
