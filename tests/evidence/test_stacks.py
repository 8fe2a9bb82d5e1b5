"""Stacks of hanging ranks, taken by the real py-spy in a step of a real Slurm job."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from activities.evidence_settings import EvidenceSettings
from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import Finished, LocalRunner
from activities.scheduler.protocol import JobRecord, JobState, Refused, SchedulerUnavailable
from activities.scheduler.stacks import ShowsStacks, dump_stacks
from tests.protocol.parts import a_record
from tests.slurm.cluster import SlurmCluster

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
HANGS = f"""exec srun {sys.executable} -c '
import time
def all_reduce():
    time.sleep(600)
def train_step():
    all_reduce()
print("hangs", flush=True)
train_step()
'"""
ON_SLURM = [pytest.mark.slurm, pytest.mark.timeout(240)]


def real(slurm: SlurmCluster) -> SlurmCli:
    return SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf), timeout_s=60))


async def until_it_hangs(slurm: SlurmCluster, job_id: str, output: str, ranks: int) -> JobRecord:
    path = slurm.directory / "work" / output
    await slurm.wait_for(lambda: path.exists() and path.read_text().count("hangs") == ranks, 60, "all ranks hang")
    return await real(slurm).job(job_id)


class TestOnSlurm:
    pytestmark = ON_SLURM

    async def test_every_rank_shows_where_it_hangs_and_goes_on_hanging(self, slurm: SlurmCluster) -> None:
        job_id = slurm.sbatch(HANGS, "--nodes=2", "--ntasks=3")
        scheduler = real(slurm)
        assert isinstance(scheduler, ShowsStacks)
        job = await until_it_hangs(slurm, job_id, f"slurm-{job_id}.out", 3)

        said = await scheduler.stacks(job, job.nodes, EvidenceSettings(stacks=True, py_spy=PY_SPY))

        assert said.count("all_reduce (<string>") == 3
        assert {node for node in job.nodes if f"{node}, step 0" in said} == set(job.nodes)
        assert (await scheduler.job(job_id)).state is JobState.RUNNING
        await scheduler.cancel(job_id)

    async def test_a_task_of_an_array_is_asked_alone_and_a_missing_py_spy_is_told(self, slurm: SlurmCluster) -> None:
        array = slurm.sbatch(HANGS, "--array=1-2", "--output=%A_%a.out")
        await until_it_hangs(slurm, f"{array}_1", f"{array}_1.out", 1)
        job = await until_it_hangs(slurm, f"{array}_2", f"{array}_2.out", 1)
        scheduler = real(slurm)

        said = await scheduler.stacks(job, job.nodes, EvidenceSettings(stacks=True, py_spy=PY_SPY))
        missing = await scheduler.stacks(job, job.nodes, EvidenceSettings(stacks=True, py_spy="py-spy-of-nobody"))

        assert said.count("all_reduce (<string>") == 1
        assert missing == f"0: py-spy-of-nobody is not there on {job.nodes[0]}\n"
        await scheduler.cancel(array)

    async def test_a_step_that_slurm_refuses_says_why(self, slurm: SlurmCluster) -> None:
        job_id = slurm.sbatch("exit 0")
        await slurm.wait_for(lambda: slurm.field(job_id, "JobState") == "COMPLETED", 60, "the job completes")
        job = await real(slurm).job(job_id)

        with pytest.raises(Refused, match=rf"no stacks of job {job_id}: srun: error: .*job"):
            await real(slurm).stacks(job, ("node01",), EvidenceSettings(stacks=True))


class Noting:
    """A runner that notes its commands, and says what it is told to."""

    def __init__(self, *answers: Finished) -> None:
        self.answers = list(answers)
        self.commands: list[tuple[str, ...]] = []

    async def run(self, *command: str, stdin: str = "") -> Finished:
        self.commands.append(command)
        return self.answers.pop(0)


NODES = tuple(f"node{number:03}" for number in range(40))


async def test_the_number_of_nodes_is_bounded_and_the_first_ones_are_asked() -> None:
    runner = Noting(Finished(124, "0: node000, step 0\n", ""))

    said = await dump_stacks(runner, a_record(), NODES, EvidenceSettings(stacks=True))

    assert said == "0: node000, step 0\n", "what a step said before its time was over counts"
    [command] = runner.commands
    assert command[:4] == ("timeout", "-k", "1", "15")
    assert f"--nodelist={','.join(NODES[:16])}" in command


async def test_the_step_runs_as_the_jobs_owner_where_the_operator_says_how() -> None:
    settings = EvidenceSettings(stacks=True, as_owner=("runuser", "-u", "{user}", "--"))
    runner = Noting(Finished(0, "0: node01, step 0\n", ""))
    await dump_stacks(runner, a_record(user="alice"), ("node01",), settings)
    assert runner.commands[0][:6] == ("runuser", "-u", "alice", "--", "timeout", "-k")

    for user in ("", "-u root", "--login", "alice;id", "a b"):
        with pytest.raises(Refused, match="no user name"):
            await dump_stacks(Noting(), a_record(user=user), ("node01",), settings)


async def test_an_array_task_whose_raw_id_is_not_told_is_not_guessed() -> None:
    runner = Noting(Finished(1, "", "slurm_load_jobs error: Invalid job id specified"))

    with pytest.raises(SchedulerUnavailable, match="raw id of job 7_2"):
        await dump_stacks(runner, a_record(job_id="7_2"), ("node01",), EvidenceSettings(stacks=True))
