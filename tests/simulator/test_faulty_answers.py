"""Calls that get lost, late or doubled on their way, and answers that make no sense."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.protocol import Hold, Refused, SchedulerUnavailable
from activities.scheduler.simulated import SimulatedScheduler
from activities.scheduler.simulated_wire import Fault, Inject, JobSpec
from tests.simulator.running import RunningSimulator, running, until
from workers.simulator.injection import Injector

SLEEPS = JobSpec(argv=("sleep", "600"))
HELD = SLEEPS.model_copy(update={"held": True})


async def always(simulator: RunningSimulator, fault: Fault, delay_s: float = 1.0) -> None:
    await simulator.cluster.inject(seed=1, rates={fault: 1.0}, delay_s=delay_s)


async def never(simulator: RunningSimulator) -> None:
    await simulator.cluster.inject(seed=1, rates={})


async def test_a_lost_request_has_no_effect(simulator: RunningSimulator) -> None:
    job_id = await simulator.cluster.submit(HELD)
    await always(simulator, Fault.LOSE_REQUEST)
    with pytest.raises(SchedulerUnavailable, match="closed the connection before it answered release"):
        await simulator.scheduler.release(job_id)

    await never(simulator)
    assert (await simulator.scheduler.job(job_id)).hold is Hold.USER


async def test_a_lost_answer_leaves_its_effect(simulator: RunningSimulator) -> None:
    job_id = await simulator.cluster.submit(HELD)
    await always(simulator, Fault.LOSE_ANSWER)
    with pytest.raises(SchedulerUnavailable):
        await simulator.scheduler.release(job_id)

    await never(simulator)
    assert (await simulator.scheduler.job(job_id)).hold is Hold.NONE


async def test_a_delayed_request_takes_effect_after_the_caller_gave_up(simulator: RunningSimulator) -> None:
    job_id = await simulator.cluster.submit(HELD)
    await always(simulator, Fault.DELAY_REQUEST, delay_s=1.0)
    with pytest.raises(SchedulerUnavailable, match="did not answer release within"):
        await SimulatedScheduler(simulator.socket, timeout_s=0.2).release(job_id)

    await never(simulator)
    assert (await simulator.scheduler.job(job_id)).hold is Hold.USER
    await until(simulator, job_id, running)


async def test_a_delayed_answer_comes_when_one_waits(simulator: RunningSimulator) -> None:
    await always(simulator, Fault.DELAY_ANSWER, delay_s=0.3)
    begin = asyncio.get_running_loop().time()

    assert len(await simulator.scheduler.nodes()) == 8
    assert asyncio.get_running_loop().time() - begin >= 0.3


async def test_a_doubled_request_is_answered_as_the_second_one(simulator: RunningSimulator) -> None:
    job_id = await simulator.cluster.submit(SLEEPS)
    await until(simulator, job_id, running)
    await always(simulator, Fault.DUPLICATE)
    with pytest.raises(Refused, match="Job is pending execution"):
        await simulator.scheduler.requeue_hold(job_id)

    await never(simulator)
    assert (await simulator.scheduler.job(job_id)).restart_count == 1


@given(st.integers(0, 1000), st.dictionaries(st.sampled_from(Fault), st.floats(0, 0.2)))
def test_the_same_seed_draws_the_same_faults(seed: int, rates: dict[Fault, float]) -> None:
    settings = Inject(seed=seed, rates=rates)
    one, other = Injector(settings), Injector(settings)

    drawn = [one.draw() for _ in range(50)]
    assert drawn == [other.draw() for _ in range(50)]
    assert {fault for fault in drawn if fault} <= set(rates)


async def test_a_cluster_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SchedulerUnavailable, match="cannot be reached"):
        await SimulatedScheduler(tmp_path / "none.sock").jobs()


@pytest.mark.parametrize("garbage", [b"<html>\n", b"{}{}\n", b'{"jobs": [{"job_id": "; rm -rf /"}]}\n', b"\xff\n"])
async def test_an_answer_that_makes_no_sense_is_no_answer(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    async def talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(garbage)
        writer.close()

    socket = tmp_path_factory.mktemp("sim") / "cluster.sock"
    async with await asyncio.start_unix_server(talk_nonsense, socket):
        with pytest.raises(SchedulerUnavailable, match="makes no sense"):
            await SimulatedScheduler(socket).jobs()


async def test_a_request_that_makes_no_sense_is_refused_and_the_cluster_carries_on(simulator: RunningSimulator) -> None:
    for line in (b"rubbish\n", b'{"verb": "job", "job_id": "1; reboot"}\n', b'{"verb": "format_disk"}\n', b"\n"):
        reader, writer = await asyncio.open_unix_connection(simulator.socket)
        writer.write(line)
        assert b'"error":"refused"' in await reader.readline()
        writer.close()

    assert len(await simulator.scheduler.nodes()) == 8
