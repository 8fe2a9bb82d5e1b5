"""The clusters that drills are run on: the simulated one, and a real Slurm with an accounting database."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from activities.scheduler.protocol import JobRecord, JobState, Scheduler
from activities.scheduler.simulated_wire import JobSpec
from benchmarks.crowd import COMMENT, Fuse
from tests.drills.crowd import Voice
from tests.simulator.line import Line
from tests.simulator.running import RunningSimulator, running_simulator
from tests.slurm.accounting import AccountedCluster
from workers.scheduler_settings import CliScheduler
from workers.schedulers import open_scheduler
from workers.settings import ClusterSettings

SLEEPS = "exec sleep 86400"
START_TIMEOUT_S = 180.0
JOBS_PER_CPU = 16


class DrillCluster(Protocol):
    """What a drill needs of a cluster."""

    @property
    def settings(self) -> dict[str, object]:
        """How relight reaches it."""
        ...

    @property
    def directory(self) -> Path:
        """Where files of the drill may lie."""
        ...

    async def submit(self, script: str, name: str) -> str:
        """Submit a job of one node that opted in; return its id."""
        ...

    async def records(self) -> dict[str, JobRecord]:
        """Read all jobs, past whatever is broken between relight and the cluster. By id."""
        ...


class Simulated:
    """The simulated cluster, with a line to it that can be broken."""

    def __init__(self, simulator: RunningSimulator, line: Line, socket: Path) -> None:
        self.line = line
        self._simulator = simulator
        self._socket = socket

    @property
    def settings(self) -> dict[str, object]:
        return {"kind": "simulated", "socket": str(self._socket)}

    @property
    def directory(self) -> Path:
        return self._simulator.directory

    async def submit(self, script: str, name: str) -> str:
        spec = JobSpec(argv=("sh", "-c", script), name=name, comment=COMMENT, output="%x-%j.log")
        return await self._simulator.cluster.submit(spec)

    async def records(self) -> dict[str, JobRecord]:
        return {job.job_id: job for job in (await self._simulator.scheduler.jobs()).jobs}

    @property
    def process(self) -> asyncio.subprocess.Process:
        """What answers at the end of the line."""
        return self._simulator.process


class Real:
    """A real Slurm that runs `JOBS_PER_CPU` jobs on each of its CPUs, and a slurmdbd."""

    def __init__(self, slurm: AccountedCluster, reader: Scheduler) -> None:
        self.slurm = slurm
        self._reader = reader

    @property
    def settings(self) -> dict[str, object]:
        return {"kind": "cli", "bin_dir": str(self.slurm.commands), "slurm_conf": str(self.slurm.conf)}

    @property
    def directory(self) -> Path:
        return self.slurm.directory / "work"

    async def submit(self, script: str, name: str) -> str:
        options = ("-p", "crowd", "-J", name, "--comment", COMMENT, "-o", "%x-%j.log", "--mem=1", "-n1")
        return await asyncio.to_thread(self.slurm.sbatch, f"#!/bin/sh\n{script}", *options)

    async def records(self) -> dict[str, JobRecord]:
        return {job.job_id: job for job in (await self._reader.jobs()).jobs}


@asynccontextmanager
async def simulated(jobs: int) -> AsyncIterator[Simulated]:
    """A simulated cluster with a node for each job."""
    with tempfile.TemporaryDirectory(prefix="relight-drill-") as directory:
        async with running_simulator(Path(directory), "--nodes", str(jobs), "--requeue-delay-s", "2") as simulator:
            line = Line(simulator.socket)
            socket = simulator.directory / "line.sock"
            async with line.listening(socket):
                yield Simulated(simulator, line, socket)


@asynccontextmanager
async def real(jobs: int) -> AsyncIterator[Real]:
    """A real cluster with a partition in which jobs share CPUs."""
    crowd = f"PartitionName=crowd Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=FORCE:{JOBS_PER_CPU}"
    slurm = AccountedCluster(extra_conf=crowd)
    slurm.start()
    try:
        settings = CliScheduler(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf))
        async with open_scheduler(ClusterSettings(name="drill", scheduler=settings)) as reader:
            yield Real(slurm, reader)
    finally:
        slurm.stop()


async def start_crowd(cluster: DrillCluster, count: int) -> list[Voice]:
    """Submit `count` jobs that sleep, and return them once all run."""
    for _ in range(count):
        await cluster.submit(SLEEPS, "healthy")
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            jobs = (await cluster.records()).values()
            if all(job.state is JobState.RUNNING for job in jobs):
                return [Voice(job.job_id, Path(job.stdout)) for job in jobs]
            await asyncio.sleep(0.5)


class Doomed:
    """A job that really fails once it is told to; its next attempt sleeps."""

    def __init__(self, cluster: DrillCluster) -> None:
        self.job_id = ""
        self._cluster = cluster
        place = Path(tempfile.mkdtemp(dir=cluster.directory))
        place.chmod(0o755)
        self._fuse = Fuse(place / "fuse")

    async def start(self) -> None:
        """Submit it, and wait until it runs."""
        self.job_id = await self._cluster.submit(self._fuse.script, "doomed")
        async with asyncio.timeout(START_TIMEOUT_S):
            while (await self._cluster.records())[self.job_id].state is not JobState.RUNNING:
                await asyncio.sleep(0.2)

    async def fail(self) -> None:
        """Let it fail."""
        await asyncio.to_thread(self._fuse.light)
