"""What a job's processes get, and what stands in the job's output, as on a real cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from activities.scheduler.protocol import JobState
from activities.scheduler.simulated_wire import JobSpec
from tests.simulator.running import RunningSimulator, ended, held, running, running_simulator, until, until_line


def sh(script: str, *, nodes: int = 1, append: bool = True, requeueable: bool = True, label: bool = False) -> JobSpec:
    return JobSpec(
        argv=("sh", "-c", script), nodes=nodes, append=append, requeueable=requeueable, label=label, output="%x-%j.log"
    )


async def submit(simulator: RunningSimulator, spec: JobSpec) -> tuple[str, Path]:
    job_id = await simulator.cluster.submit(spec)
    return job_id, Path((await simulator.scheduler.job(job_id)).stdout)


async def requeue(simulator: RunningSimulator, job_id: str) -> None:
    await simulator.scheduler.requeue_hold(job_id)
    await until(simulator, job_id, held)
    await simulator.scheduler.release(job_id)
    await simulator.scheduler.start_now(job_id)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def until_dead(pid: int, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while alive(pid):
            await asyncio.sleep(0.05)


async def test_each_node_gets_its_own_process_with_slurms_environment(simulator: RunningSimulator) -> None:
    script = 'echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME of $SLURM_JOB_NODELIST, job $SLURM_JOB_ID"'
    job_id, log = await submit(simulator, sh(script, nodes=2, label=True))
    done = await until(simulator, job_id, ended)

    assert done.state is JobState.COMPLETED
    assert sorted(log.read_text().splitlines()) == [
        f"0: 0 of 2 on node01 of node01,node02, job {job_id}",
        f"1: 1 of 2 on node02 of node01,node02, job {job_id}",
    ]


async def test_the_restart_count_is_set_only_after_a_restart(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh('echo "count=${SLURM_RESTART_COUNT-unset}"'))
    await until(simulator, job_id, ended)
    await requeue(simulator, job_id)
    await until(simulator, job_id, lambda job: ended(job) and job.restart_count == 1)

    assert log.read_text() == "count=unset\ncount=1\n"


async def test_without_append_a_requeue_truncates_the_output(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh('echo "count=${SLURM_RESTART_COUNT-unset}"', append=False))
    await until(simulator, job_id, ended)
    await requeue(simulator, job_id)
    await until(simulator, job_id, lambda job: ended(job) and job.restart_count == 1)

    assert log.read_text() == "count=1\n"


async def test_one_bad_exit_ends_the_other_tasks(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh('test "$SLURM_PROCID" = 1 && exit 7; exec sleep 600', nodes=3))
    done = await until(simulator, job_id, ended)

    assert (done.state, done.exit_code) == (JobState.FAILED, 128 + signal.SIGTERM)
    lines = log.read_text().splitlines()
    assert lines[0] == "srun: error: node02: task 1: Exited with exit code 7"
    assert lines[1] == f"srun: launch/slurm: _step_signal: Terminating StepId={job_id}.0"
    cancelled_at = r"CANCELLED AT \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(rf"slurmstepd-node01: error: \*\*\* STEP {job_id}\.0 ON node01 {cancelled_at} \*\*\*", lines[2])
    assert sorted(lines[3:]) == [f"srun: error: node0{node}: task {node - 1}: Terminated" for node in (1, 3)]


async def test_a_requeue_and_a_cancel_say_so_in_the_output(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh("exec sleep 600"))
    await until(simulator, job_id, running)
    await requeue(simulator, job_id)
    assert re.search(rf"\*\*\* JOB {job_id} ON node01 CANCELLED AT \S+ DUE TO JOB REQUEUE \*\*\*\n", log.read_text())

    await until(simulator, job_id, running)
    await simulator.cluster.cancel(job_id, by="alice")
    done = await until(simulator, job_id, ended)
    assert (done.state, done.cancelled_by) == (JobState.CANCELLED, "alice")
    assert re.search(rf"\*\*\* JOB {job_id} ON node01 CANCELLED AT \S+ \*\*\*\n", log.read_text())


async def test_a_process_that_ignores_sigterm_is_killed(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh("trap '' TERM; echo ready; while true; do sleep 1; done"))
    await until_line(log, "ready")
    await simulator.scheduler.cancel(job_id)

    await until(simulator, job_id, ended)
    assert "srun: error: node01: task 0: Killed" in log.read_text()


async def test_what_a_task_leaves_behind_ends_with_it(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh("sleep 600 & echo $!"))
    await until(simulator, job_id, ended)

    await until_dead(int(log.read_text()))


async def test_a_failed_node_takes_its_process_and_slurm_requeues_the_job(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh("exec sleep 600", nodes=2))
    await until(simulator, job_id, running)
    await simulator.cluster.fail_node("node02")
    back = await until(simulator, job_id, lambda job: job.state is JobState.PENDING and not job.flags)

    assert (back.restart_count, back.reason) == (1, "BeginTime")
    output = log.read_text()
    assert "srun: error: Node failure on node02" in output
    assert "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***" in output
    assert "node02: task 1" not in output


async def test_a_failed_node_ends_a_job_that_may_not_be_requeued(simulator: RunningSimulator) -> None:
    job_id, _ = await submit(simulator, sh("exec sleep 600", requeueable=False))
    await until(simulator, job_id, running)
    await simulator.cluster.fail_node("node01")

    assert (await until(simulator, job_id, ended)).state is JobState.NODE_FAIL


async def test_a_program_that_is_not_there_fails_the_job(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, JobSpec(argv=("/no/such/program",)))
    done = await until(simulator, job_id, ended)

    assert (done.state, done.exit_code) == (JobState.FAILED, 2)
    assert "execve(): /no/such/program: No such file or directory" in log.read_text()


async def test_an_output_that_cannot_be_written_fails_the_job(simulator: RunningSimulator) -> None:
    job_id = await simulator.cluster.submit(JobSpec(argv=("true",), output="/no/such/directory/log"))

    done = await until(simulator, job_id, ended)
    assert (done.state, done.exit_code, done.exit_signal) == (JobState.FAILED, 0, 53)


async def test_output_that_is_not_text_and_has_no_last_newline_is_kept(simulator: RunningSimulator) -> None:
    job_id, log = await submit(simulator, sh(r"printf 'a\r\377\nb'", label=True))
    await until(simulator, job_id, ended)

    assert log.read_bytes() == b"0: a\r\xff\n0: b\n"


async def test_an_ended_job_is_unknown_after_min_job_age(simulator: RunningSimulator) -> None:
    job_id, _ = await submit(simulator, sh("exit 0"))
    await until(simulator, job_id, ended)
    await asyncio.sleep(3.5)

    assert job_id not in [job.job_id for job in (await simulator.scheduler.jobs()).jobs]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
async def test_jobs_die_with_their_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running_simulator(tmp_path_factory.mktemp("sim")) as simulator:
        _, log = await submit(simulator, sh("trap '' TERM; echo $$; while true; do sleep 1; done"))
        pid = int(await until_line(log, "\n"))
        os.kill(simulator.process.pid, signal.SIGKILL)
        await until_dead(pid)


async def test_a_shutdown_ends_the_process_and_its_jobs(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running_simulator(tmp_path_factory.mktemp("sim")) as simulator:
        _, log = await submit(simulator, sh("echo $$; exec sleep 600"))
        pid = int(await until_line(log, "\n"))
        await simulator.cluster.shutdown()

        assert await simulator.process.wait() == 0
        await until_dead(pid)
        assert not simulator.socket.exists()
