"""Slurm's commands where the real cluster misbehaves, or a person does: what the shared suite cannot ask of all."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import Finished, LocalRunner, Runner
from activities.scheduler.protocol import (
    Hold,
    JobFlag,
    JobRecord,
    JobState,
    JobUnknown,
    NotPermitted,
    Refused,
    SchedulerUnavailable,
)
from tests.slurm.cluster import SlurmCluster
from tests.slurm.release import OWN

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

SLOW_TO_DIE = """srun bash -c 'trap "" TERM; echo deaf; while true; do sleep 1; done'"""
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def scheduler(slurm: SlurmCluster) -> SlurmCli:
    return SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)))


async def until(
    scheduler: SlurmCli, job_id: str, holds: Callable[[JobRecord], bool], timeout_s: float = 60
) -> JobRecord:
    """Return the job once it `holds`. A task of an array that has not started yet has no record of its own."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            job = await scheduler.job(job_id)
        except JobUnknown:
            assert "_" in job_id, f"job {job_id} is gone"
        else:
            if holds(job):
                return job
        assert time.monotonic() < deadline, f"job {job_id} is not as expected after {timeout_s:g} s"
        await asyncio.sleep(0.1)


def running(job: JobRecord) -> bool:
    return job.state is JobState.RUNNING


async def test_a_dead_controller_is_no_answer_to_any_question(slurm: SlurmCluster, scheduler: SlurmCli) -> None:
    slurm.kill_slurmctld()
    try:
        answers = await asyncio.gather(
            scheduler.jobs(),
            scheduler.job("1"),
            scheduler.nodes(),
            scheduler.requeue_hold("1"),
            scheduler.constrain("1", admin_comment="x"),
            scheduler.release("1"),
            scheduler.start_now("1"),
            scheduler.cancel("1"),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [SchedulerUnavailable] * len(answers)
    finally:
        slurm.restart_slurmctld()
    assert await scheduler.nodes()


async def test_a_stalled_controller_is_no_answer_and_still_does_later_what_it_was_asked(slurm: SlurmCluster) -> None:
    scheduler = SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf), timeout_s=2))
    job_id = slurm.sbatch("sleep 300")
    await until(scheduler, job_id, running)
    slurm.stall_slurmctld()
    try:
        began = time.monotonic()
        with pytest.raises(SchedulerUnavailable, match="did not answer within 2 s"):
            await scheduler.jobs()
        with pytest.raises(SchedulerUnavailable, match="did not answer within 2 s"):
            await scheduler.requeue_hold(job_id)
        assert time.monotonic() - began < 6
    finally:
        slurm.continue_slurmctld()

    held = await until(scheduler, job_id, lambda job: job.hold is Hold.REQUEUED)
    assert held.restart_count == 1
    await scheduler.cancel(job_id)


async def test_a_cancelled_read_leaves_no_process_behind(slurm: SlurmCluster, scheduler: SlurmCli) -> None:
    slurm.stall_slurmctld()
    try:
        reading = asyncio.create_task(scheduler.jobs())
        await asyncio.sleep(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        left = subprocess.run(["pgrep", "-x", "-f", "squeue --json --all --states=all"], capture_output=True, text=True)
        mine = [pid for pid in left.stdout.split() if str(slurm.conf).encode() in environment(pid)]
        assert mine == []
    finally:
        slurm.continue_slurmctld()


async def test_a_host_without_slurm_or_its_configuration_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SchedulerUnavailable):
        await SlurmCli(LocalRunner(slurm_conf="/nowhere/slurm.conf", timeout_s=2)).jobs()
    monkeypatch.setattr("activities.scheduler.command._PATH", "/nowhere")
    with pytest.raises(SchedulerUnavailable, match="squeue cannot be started"):
        await SlurmCli(LocalRunner()).jobs()


async def test_a_scancel_that_did_not_run_has_cancelled_nothing() -> None:
    with pytest.raises(SchedulerUnavailable, match="cancelling job 7: sh: scancel: not found"):
        await SlurmCli(Answering(Finished(127, "", "sh: scancel: not found"))).cancel("7")


async def test_an_account_without_rights_is_told_so(slurm: SlurmCluster) -> None:
    if slurm.release.name != OWN:
        pytest.skip("only root enters the folder of another release")
    scheduler = SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)))
    job_id = slurm.sbatch("sleep 300")
    await until(scheduler, job_id, running)
    unprivileged = SlurmCli(AsNobody(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf))))

    for verb in (
        unprivileged.requeue_hold(job_id),
        unprivileged.constrain(job_id, admin_comment="x"),
        unprivileged.release(job_id),
        unprivileged.cancel(job_id),
        unprivileged.allow_requeue(job_id),
    ):
        with pytest.raises(NotPermitted, match="Administrator"):
            await verb
    assert (await unprivileged.job(job_id)).state is JobState.RUNNING
    slurm.run("scancel", job_id)


class Answering:
    """A place where every command gives the same answer."""

    def __init__(self, answer: Finished) -> None:
        self._answer = answer

    async def run(self, *command: str, stdin: str = "") -> Finished:
        return self._answer


class AsNobody:
    """Commands as an account that has no rights."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(self, *command: str, stdin: str = "") -> Finished:
        return await self._runner.run(*NOBODY, "--", *command, stdin=stdin)


async def test_a_job_that_is_slow_to_die_takes_its_exclusions_while_it_is_completing(
    slurm: SlurmCluster, scheduler: SlurmCli
) -> None:
    job_id = slurm.sbatch(SLOW_TO_DIE, "--nodes=2", "--output=deaf-%j.out")
    output = slurm.directory / "work" / f"deaf-{job_id}.out"
    # RUNNING says only that the job has nodes: a launch that fails takes it back to PENDING.
    await slurm.wait_for(
        lambda: output.exists() and output.read_text().count("deaf") == 2, 60, "both tasks ignore signals"
    )
    first = await until(scheduler, job_id, running)
    await scheduler.requeue_hold(job_id)

    completing = await scheduler.job(job_id)
    assert completing.flags == {JobFlag.COMPLETING}
    assert (completing.state, completing.hold, completing.restart_count) == (JobState.PENDING, Hold.REQUEUED, 1)
    assert completing.submitted_at == first.submitted_at, "the submit time moves when the job is back"
    await scheduler.constrain(job_id, exclude=first.nodes, admin_comment="early")
    with pytest.raises(Refused, match="pending"):
        await scheduler.requeue_hold(job_id)

    back = await until(scheduler, job_id, lambda job: JobFlag.COMPLETING not in job.flags)
    assert (back.hold, back.excluded_nodes, back.admin_comment) == (Hold.REQUEUED, first.nodes, "early")
    assert back.submitted_at > first.submitted_at
    await scheduler.cancel(job_id)


async def test_an_administrators_hold_upon_ours_is_seen_as_theirs(slurm: SlurmCluster, scheduler: SlurmCli) -> None:
    job_id = slurm.sbatch("sleep 300")
    await until(scheduler, job_id, running)
    await scheduler.requeue_hold(job_id)
    await until(scheduler, job_id, lambda job: job.hold is Hold.REQUEUED and not job.flags)

    slurm.run("scontrol", "hold", job_id)

    assert (await scheduler.job(job_id)).hold is Hold.ADMIN
    await scheduler.cancel(job_id)


async def test_a_persons_hold_on_a_running_job_is_seen_until_it_is_lifted_even_after_the_job_failed(
    slurm: SlurmCluster, scheduler: SlurmCli
) -> None:
    kept, lifted = slurm.sbatch("sleep 8; exit 3"), slurm.sbatch("sleep 8; exit 3")
    for job_id in (kept, lifted):
        await until(scheduler, job_id, running)
        slurm.run("scontrol", "hold", job_id)
        assert (await scheduler.job(job_id)).hold is Hold.ADMIN
    slurm.run("scontrol", "release", lifted)
    assert (await scheduler.job(lifted)).hold is Hold.NONE

    failed = [await until(scheduler, job_id, lambda job: job.state is JobState.FAILED) for job_id in (kept, lifted)]
    assert [job.hold for job in failed] == [Hold.USER, Hold.NONE], "of an ended job it is not told whose hold it is"


async def test_a_dead_node_is_told_and_slurm_requeues_by_itself_only_what_may_be_requeued(
    slurm: SlurmCluster, scheduler: SlurmCli
) -> None:
    may = slurm.sbatch("srun sleep 300", "--nodelist=node07")
    may_not = slurm.sbatch("srun sleep 300", "--nodelist=node07", "--no-requeue")
    before = [await until(scheduler, job_id, running) for job_id in (may, may_not)]
    slurm.kill_slurmd("node07")
    try:
        requeued = await until(scheduler, may, lambda job: job.restart_count == 1 and not job.flags, 90)
        failed = await until(scheduler, may_not, lambda job: job.state is JobState.NODE_FAIL, 30)
        (dead,) = (node for node in await scheduler.nodes() if node.name == "node07")
    finally:
        slurm.run("scancel", may)
        slurm.restart_slurmd("node07")
        await slurm.wait_for(lambda: slurm.node_state("node07") == "idle", 60, "the node is back")

    assert (requeued.state, requeued.hold) == (JobState.PENDING, Hold.NONE)
    assert requeued.submitted_at > before[0].submitted_at
    assert failed.nodes == ("node07",)
    assert failed.restart_count == 0
    assert {"DOWN", "NOT_RESPONDING"} <= dead.states
    assert not dead.usable


async def test_only_the_leader_of_a_het_job_is_requeued(slurm: SlurmCluster, scheduler: SlurmCli) -> None:
    leader = slurm.sbatch("#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH hetjob\n#SBATCH --nodes=2\nsleep 300\n")
    component = str(int(leader) + 1)

    assert (await scheduler.job(leader)).het_leader_id == ""
    assert (await scheduler.job(component)).het_leader_id == leader
    with pytest.raises(Refused, match="not heterogeneous job leader"):
        await scheduler.requeue_hold(component)
    await scheduler.cancel(leader)


async def test_output_paths_are_those_that_slurm_opened(slurm: SlurmCluster, scheduler: SlurmCli) -> None:
    pattern = "%x-%5j-%A-%a-%J-%n-%s-%t-%u-%%-%z.log"
    jobs = [
        slurm.sbatch("echo x", "--job-name=a b", f"--output={pattern}"),
        slurm.sbatch("echo x", "--error=sub-%j.err"),
        slurm.sbatch("echo x", r"--output=back\slash-%j\\.log"),
        slurm.sbatch("echo x", "--array=3", "--output=%A-%3a-%j.log") + "_3",
    ]
    for job_id in jobs:
        job = await until(scheduler, job_id, lambda job: job.state is JobState.COMPLETED)
        assert Path(job.stdout).read_text() == "x\n"
        assert Path(job.stderr).exists()


@pytest.mark.parametrize("text", ["1; reboot", "--help", "", "1 2", "1\n", "٣", "1_2_3", "all"])
async def test_what_is_no_job_id_never_reaches_a_command_line(
    scheduler: SlurmCli, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(scheduler, "_runner", None)
    for question in (scheduler.job, scheduler.requeue_hold, scheduler.release, scheduler.start_now, scheduler.cancel):
        with pytest.raises(JobUnknown, match="not a job id"):
            await question(text)


async def test_what_is_no_node_name_or_comment_never_reaches_a_command_line(
    scheduler: SlurmCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_runner", None)
    with pytest.raises(Refused, match="not a node name"):
        await scheduler.constrain("1", exclude=("node01", "node02 AdminComment=x"))
    with pytest.raises(Refused, match="NUL"):
        await scheduler.constrain("1", admin_comment="a\0b")
    with pytest.raises(Refused, match="bytes"):
        await scheduler.constrain("1", admin_comment="ü" * 20_000)


def environment(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
