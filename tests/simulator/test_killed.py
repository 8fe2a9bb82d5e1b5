"""A simulated cluster that is killed comes back as a real one does after a power cut, with all that it had said."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.scheduler.protocol import Hold, JobState, Refused
from activities.scheduler.simulated_wire import FailNode, JobSpec
from tests.simulator.running import RunningSimulator, ended, running, until, until_line
from workers.simulator.journal import read_journal

SLEEPS = JobSpec(argv=("sleep", "600"), nodes=2)


async def test_what_ran_is_requeued_and_what_was_held_stays_held(simulator: RunningSimulator) -> None:
    runs = await simulator.cluster.submit(SLEEPS)
    final = await simulator.cluster.submit(SLEEPS.model_copy(update={"requeueable": False}))
    waits = await simulator.cluster.submit(SLEEPS)
    for job_id in (runs, final, waits):
        await until(simulator, job_id, running)
    await simulator.scheduler.requeue_hold(waits)
    await simulator.scheduler.constrain(waits, exclude=("node01",), admin_comment="ours")

    await simulator.kill()
    await simulator.start()

    back = await until(simulator, runs, lambda job: not job.flags)
    assert (back.state, back.restart_count, back.hold) == (JobState.PENDING, 1, Hold.NONE)
    assert (await until(simulator, final, ended)).state is JobState.NODE_FAIL
    held = await until(simulator, waits, lambda job: not job.flags)
    assert (held.hold, held.excluded_nodes, held.admin_comment) == (Hold.REQUEUED, ("node01",), "ours")
    assert held.restart_count == 1
    told = [line for line in read_journal(simulator.directory) if isinstance(line.request, FailNode)]
    assert {job.job_id for line in told for job in line.jobs} == {runs, final}


async def test_a_cluster_that_ended_in_good_order_begins_anew(simulator: RunningSimulator) -> None:
    job_id = await simulator.cluster.submit(SLEEPS)
    await until(simulator, job_id, running)
    simulator.process.terminate()
    await simulator.process.wait()

    await simulator.start()

    assert (await simulator.scheduler.jobs()).jobs == ()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState.TIMEOUT, "DUE TO TIME LIMIT"),
        (JobState.OUT_OF_MEMORY, "Detected 1 oom_kill event"),
        (JobState.PREEMPTED, "DUE TO PREEMPTION"),
    ],
)
async def test_an_attempt_is_ended_by_others_in_slurms_words(
    simulator: RunningSimulator, state: JobState, words: str
) -> None:
    job_id = await simulator.cluster.submit(SLEEPS)
    record = await until(simulator, job_id, running)
    await simulator.cluster.end_attempt(job_id, state)  # type: ignore[arg-type]

    assert (await until(simulator, job_id, ended)).state is state
    assert words in await until_line(Path(record.stdout), "CANCELLED")
    with pytest.raises(Refused, match="is not running"):
        await simulator.cluster.end_attempt(job_id, state)  # type: ignore[arg-type]
