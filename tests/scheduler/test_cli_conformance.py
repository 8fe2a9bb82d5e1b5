"""The suite for Slurm's own commands, on a real cluster."""

from __future__ import annotations

import asyncio

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import Scheduler
from tests.scheduler.conformance import FAILURE_EXIT_CODE, Behaviour, ClusterUnderTest, SchedulerConformance
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

SCRIPTS = {
    Behaviour.RUNS: "exec sleep 600",
    Behaviour.COMPLETES: "exit 0",
    Behaviour.FAILS: f"exit {FAILURE_EXIT_CODE}",
}


class RealCluster(ClusterUnderTest):
    """The real cluster, read and told through Slurm's commands."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self._slurm = slurm
        self._scheduler = SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)))

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

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
        options = [f"--nodes={nodes}", f"--comment={comment}", "--requeue" if requeueable else "--no-requeue"]
        if exclude:
            options.append(f"--exclude={','.join(exclude)}")
        if held:
            options.append("--hold")
        return self._slurm.sbatch(SCRIPTS[behaviour], *options)

    async def submit_array(self, behaviour: Behaviour, *, tasks: int) -> str:
        return self._slurm.sbatch(SCRIPTS[behaviour], f"--array=1-{tasks}")

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class TestSlurmCli(SchedulerConformance):
    @pytest.fixture
    def cluster(self, slurm: SlurmCluster) -> ClusterUnderTest:
        return RealCluster(slurm)
