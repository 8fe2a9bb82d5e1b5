"""The demonstration's jobs, with the test in the place of the service that recovers them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.scheduler.protocol import JobState
from tests.simulator.running import RunningSimulator, ended, held, running, running_simulator, until, until_line
from workers.simulator.scenario import BAD_NODE, GPU_FAULT, HANG, HEALTHY, KEY_ERROR, demo_jobs


@pytest.fixture(scope="module")
async def simulator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningSimulator]:
    async with running_simulator(tmp_path_factory.mktemp("sim")) as simulator:
        yield simulator


@pytest.fixture(scope="module")
async def jobs(simulator: RunningSimulator) -> dict[str, str]:
    """The ids of all four by name, submitted once: the tests go on from what the ones before left."""
    return {spec.name: await simulator.cluster.submit(spec) for spec in demo_jobs(simulator.directory, step_s=0.05)}


async def log_of(simulator: RunningSimulator, job_id: str) -> Path:
    return Path((await simulator.scheduler.job(job_id)).stdout)


async def requeue_without(simulator: RunningSimulator, job_id: str, *exclude: str) -> None:
    await simulator.scheduler.requeue_hold(job_id)
    await until(simulator, job_id, held)
    await simulator.scheduler.constrain(job_id, exclude=exclude)
    await simulator.scheduler.release(job_id)
    await simulator.scheduler.start_now(job_id)


async def test_all_four_jobs_run_at_once_with_a_node_to_spare(
    simulator: RunningSimulator, jobs: dict[str, str]
) -> None:
    records = [await until(simulator, job_id, running) for job_id in jobs.values()]

    assert sum(len(job.nodes) for job in records) == 7
    assert BAD_NODE in records[0].nodes


async def test_the_gpu_job_resumes_from_its_checkpoint_without_the_bad_node(
    simulator: RunningSimulator, jobs: dict[str, str]
) -> None:
    job_id = jobs[GPU_FAULT]
    log = await log_of(simulator, job_id)
    seen = await until_line(log, "fallen off the bus")
    assert re.search(r"^1: NVRM: Xid", seen, re.MULTILINE)
    assert running(await simulator.scheduler.job(job_id))

    failed = await until(simulator, job_id, ended)
    assert failed.state is JobState.FAILED
    first_attempt = log.read_text()
    assert re.search(
        rf"^0: node01:\d+:\d+ \[0\] .* NCCL WARN .* remote peer {BAD_NODE}<\d+>", first_attempt, re.MULTILINE
    )
    assert "srun: error: node02: task 1: Exited with exit code 1" in first_attempt

    await requeue_without(simulator, job_id, BAD_NODE)
    done = await until(simulator, job_id, ended)

    assert done.state is JobState.COMPLETED
    assert done.restart_count == 1
    assert len(done.nodes) == 3
    assert BAD_NODE not in done.nodes
    second_attempt = log.read_text()[len(first_attempt) :]
    assert "successfully loaded checkpoint" in second_attempt
    assert re.search(r"iteration +21/ +40", second_attempt)
    assert not re.search(r"iteration +20/ +40", second_attempt)
    assert "[after training is done]" in second_attempt


async def test_the_hang_is_silent_until_it_is_requeued_and_then_completes(
    simulator: RunningSimulator, jobs: dict[str, str]
) -> None:
    job_id = jobs[HANG]
    log = await log_of(simulator, job_id)
    before = await until_line(log, "iteration       15/      40")
    await asyncio.sleep(1)
    assert log.read_text() == before
    assert running(await simulator.scheduler.job(job_id))

    await requeue_without(simulator, job_id)
    done = await until(simulator, job_id, ended)

    assert (done.state, done.restart_count) == (JobState.COMPLETED, 1)
    assert "DUE TO JOB REQUEUE ***" in log.read_text()


async def test_the_user_bug_fails_every_attempt_and_the_healthy_job_none(
    simulator: RunningSimulator, jobs: dict[str, str]
) -> None:
    job_id = jobs[KEY_ERROR]
    assert (await until(simulator, job_id, ended)).state is JobState.FAILED
    await requeue_without(simulator, job_id)
    again = await until(simulator, job_id, lambda job: ended(job) and job.restart_count == 1)

    assert again.state is JobState.FAILED
    assert (await log_of(simulator, job_id)).read_text().count("[rank0]: KeyError: 'forum'") == 2
    healthy = await until(simulator, jobs[HEALTHY], ended, timeout_s=60)
    assert (healthy.state, healthy.restart_count) == (JobState.COMPLETED, 0)
