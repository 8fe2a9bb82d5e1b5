"""The simulated cluster does what every scheduler must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.scheduler.simulated import SimulatedScheduler
from activities.scheduler.simulated_wire import JobSpec
from tests.scheduler.conformance import FAILURE_EXIT_CODE, Behaviour, ClusterUnderTest, SchedulerConformance
from tests.simulator.running import RunningSimulator, running_simulator

COMMANDS = {
    Behaviour.RUNS: ("sleep", "600"),
    Behaviour.COMPLETES: ("true",),
    Behaviour.FAILS: ("sh", "-c", f"exit {FAILURE_EXIT_CODE}"),
}


class SimulatedClusterUnderTest(ClusterUnderTest):
    def __init__(self, simulator: RunningSimulator) -> None:
        self._simulator = simulator

    @property
    def scheduler(self) -> SimulatedScheduler:
        return self._simulator.scheduler

    async def submit(
        self,
        behaviour: Behaviour,
        *,
        nodes: int = 1,
        comment: str = "",
        exclude: tuple[str, ...] = (),
        requeueable: bool = True,
        held: bool = False,
    ) -> str:
        return await self._simulator.cluster.submit(
            JobSpec(
                argv=COMMANDS[behaviour],
                nodes=nodes,
                comment=comment,
                exclude=exclude,
                requeueable=requeueable,
                held=held,
            )
        )

    async def submit_array(self, behaviour: Behaviour, *, tasks: int) -> str:
        return await self._simulator.cluster.submit(JobSpec(argv=COMMANDS[behaviour], array_tasks=tasks))

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SimulatedClusterUnderTest]:
    directory: Path = tmp_path_factory.mktemp("sim")
    async with running_simulator(directory) as simulator:
        yield SimulatedClusterUnderTest(simulator)


class TestSimulatedScheduler(SchedulerConformance):
    pass
