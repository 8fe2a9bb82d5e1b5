"""Which job comes next in a chain, and that nobody else's is touched: on a real cluster."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.marker import Account, read_marker
from activities.scheduler.protocol import JobRecord
from activities.scheduler.successors import ChainActs, SuccessorOrder
from recovery.model import Action, Advice, Disposition, JobKey, Reconciliation
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

OPTED_IN = "--comment=" + json.dumps({"APS": {"auto_resume_mode": "singleton_dependency"}})
REQUEUES = "--comment=" + json.dumps({"relight": {"mode": "act"}})
SINGLETON = "--dependency=singleton"


@pytest.fixture
def scheduler(slurm: SlurmCluster) -> SlurmCli:
    slurm.run("scancel", "--quiet", "--user=root", "--user=games")
    return SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)))


async def runs(slurm: SlurmCluster, *options: str) -> str:
    job_id = slurm.sbatch("sleep 600", *options)
    await slurm.wait_for(lambda: slurm.field(job_id, "JobState") == "RUNNING", 60)
    return job_id


async def constrain(
    scheduler: SlurmCli, failed: str, *nodes: str, ends_job: bool = False, generation: int = 1
) -> Reconciliation:
    record: JobRecord = await scheduler.job(failed)
    advice = Advice(
        job=JobKey(cluster="alpha", job_id=failed, submitted_at=record.submitted_at),
        attempt=0,
        generation=generation,
        action=Action.RESTART_EXCLUDE if nodes else Action.RESTART,
        exclude=nodes,
        reason="a GPU is gone",
        rule="culprit_named",
        advised_at=record.submitted_at,
        expires_at=record.submitted_at + timedelta(hours=1),
    )
    order = SuccessorOrder(advice=advice, job=record, ends_job=ends_job)
    seen: Reconciliation = await ActivityEnvironment().run(ChainActs(scheduler).constrain_successors, order)
    return seen


async def test_the_first_of_the_name_and_all_that_wait_for_the_end_are_constrained_and_no_other(
    slurm: SlurmCluster, scheduler: SlurmCli
) -> None:
    failed = await runs(slurm, "--job-name=chain", OPTED_IN)
    chain = ("--job-name=chain", SINGLETON, OPTED_IN, "--exclude=node08")
    first, second = slurm.sbatch("true", *chain), slurm.sbatch("true", *chain)
    follows = slurm.sbatch("true", f"--dependency=afterany:{failed}", OPTED_IN, "--nodelist=node02")
    others = [
        slurm.sbatch("true", f"--dependency=afterany:{failed}", REQUEUES),
        slurm.sbatch("true", "--job-name=chain", SINGLETON),
        slurm.sbatch("true", "--job-name=other", SINGLETON, OPTED_IN, "--begin=now+3600"),
        slurm.sbatch("true", f"--dependency=afterok:{failed}", OPTED_IN),
        slurm.sbatch(
            "true", "--job-name=chain", f"--dependency=afterany:{failed}", OPTED_IN, "--uid=games", "--gid=games"
        ),
    ]
    before = {job.job_id: job for job in (await scheduler.jobs()).jobs}
    seen = await constrain(scheduler, failed, "node02", "node03")
    again = await constrain(scheduler, failed, "node02", "node03")
    after = {job.job_id: job for job in (await scheduler.jobs()).jobs}

    assert seen.disposition is again.disposition is Disposition.CONVERGED
    assert set(after[first].excluded_nodes) == {"node02", "node03", "node08"}
    assert set(after[follows].excluded_nodes) == {"node03"}, "what it asks for by name is not excluded"
    account = read_marker(after[first].admin_comment)
    assert isinstance(account, Account)
    assert account.excluded == ("node02", "node03")
    assert {job_id: after[job_id] for job_id in (*others, second)} == {
        job_id: before[job_id] for job_id in (*others, second)
    }


async def test_what_one_job_was_kept_off_the_next_ones_avoid_too(slurm: SlurmCluster, scheduler: SlurmCli) -> None:
    first = await runs(slurm, "--job-name=long", OPTED_IN)
    chain = ("--job-name=long", SINGLETON, OPTED_IN)
    second, third = slurm.sbatch("sleep 600", *chain), slurm.sbatch("sleep 600", *chain)
    await constrain(scheduler, first, "node05")
    slurm.run("scancel", first)
    await slurm.wait_for(lambda: slurm.field(second, "JobState") == "RUNNING", 60)
    await constrain(scheduler, second, "node06")

    assert set((await scheduler.job(third)).excluded_nodes) == {"node05", "node06"}


async def test_a_job_that_hangs_is_ended_only_once_the_next_one_is_kept_off_its_node(
    slurm: SlurmCluster, scheduler: SlurmCli
) -> None:
    alone = await runs(slurm, "--job-name=alone", OPTED_IN)
    seen = await constrain(scheduler, alone, "node02", ends_job=True)
    assert (seen.reason, slurm.field(alone, "JobState")) == ("no_successor", "RUNNING")

    following = slurm.sbatch("sleep 600", "--job-name=alone", SINGLETON, OPTED_IN)
    seen = await constrain(scheduler, alone, "node02", ends_job=True)
    assert (await scheduler.job(following)).excluded_nodes == ("node02",)
    await slurm.wait_for(lambda: slurm.field(following, "JobState") == "RUNNING", 60)


async def test_a_next_job_that_a_person_holds_is_left_alone_and_one_that_started_is_told(
    slurm: SlurmCluster, scheduler: SlurmCli
) -> None:
    failed = await runs(slurm, "--job-name=held", OPTED_IN)
    held = slurm.sbatch("sleep 600", "--job-name=held", SINGLETON, OPTED_IN, "--hold")
    assert (await constrain(scheduler, failed, "node02")).reason == "person_intervened"
    assert (await scheduler.job(held)).excluded_nodes == ()

    slurm.run("scontrol", "release", held)
    slurm.run("scancel", failed)
    await slurm.wait_for(lambda: slurm.field(held, "JobState") == "RUNNING", 60)
    (its_node,) = (await scheduler.job(held)).nodes
    elsewhere = "node08" if its_node != "node08" else "node07"
    missed = await constrain(scheduler, failed, its_node, ends_job=True)
    avoided = await constrain(scheduler, failed, elsewhere, ends_job=True)

    assert missed.reason == "no_successor"
    assert f"job {held} of its chain has started already, on {its_node}" in missed.detail
    assert (avoided.disposition, avoided.detail) == (
        Disposition.CONVERGED,
        f"job {held} of the chain is next, and avoids {elsewhere}",
    )
