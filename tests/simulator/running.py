"""A simulated cluster in a process of its own, as the tests use it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from activities.scheduler.protocol import Hold, JobRecord, JobState, SchedulerUnavailable
from activities.scheduler.simulated import SimulatedCluster, SimulatedScheduler

START_TIMEOUT_S = 60.0


@dataclass
class RunningSimulator:
    """The process and both clients of its socket."""

    process: asyncio.subprocess.Process
    directory: Path
    socket: Path
    scheduler: SimulatedScheduler
    cluster: SimulatedCluster
    options: tuple[str, ...] = ()

    async def start(self) -> None:
        """Start the process once more after it has ended, and wait until it answers."""
        self.process = await _started(self.directory, self.socket, self.options)
        await self.ready()

    async def ready(self) -> None:
        """Wait until it answers."""
        try:
            await self.cluster.ready(START_TIMEOUT_S)
        except SchedulerUnavailable as error:
            log = (self.directory / "simulator.log").read_text(errors="replace")
            raise AssertionError(f"the simulated cluster does not start: {log[-2_000:]}") from error

    async def kill(self) -> None:
        """SIGKILL the process."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def running_simulator(directory: Path, *options: str) -> AsyncIterator[RunningSimulator]:
    """Start ``python -m workers.simulator`` in `directory`, yield it once it answers, and end it."""
    socket = directory / "cluster.sock"
    process = await _started(directory, socket, options)
    simulator = RunningSimulator(
        process, directory, socket, SimulatedScheduler(socket), SimulatedCluster(socket), options
    )
    try:
        await simulator.ready()
        yield simulator
    finally:
        if simulator.process.returncode is None:
            simulator.process.terminate()
        await simulator.process.wait()


async def _started(directory: Path, socket: Path, options: tuple[str, ...]) -> asyncio.subprocess.Process:
    with (directory / "simulator.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "workers.simulator", "--state-dir", str(directory), "--socket", str(socket), *options),
            stdout=log,
            stderr=log,
        )


async def until(
    simulator: RunningSimulator, job_id: str, holds: Callable[[JobRecord], bool], timeout_s: float = 20.0
) -> JobRecord:
    """Read the job until `holds` is true of it and return that record."""
    async with asyncio.timeout(timeout_s):
        while not holds(record := await simulator.scheduler.job(job_id)):
            await asyncio.sleep(0.05)
    return record


async def until_line(path: Path, text: str, timeout_s: float = 20.0) -> str:
    """Wait until `text` stands in the file and return all that does."""
    async with asyncio.timeout(timeout_s):
        while not path.exists() or text not in path.read_text():
            await asyncio.sleep(0.05)
    return path.read_text()


def running(job: JobRecord) -> bool:
    """Whether an attempt runs."""
    return job.state is JobState.RUNNING


def ended(job: JobRecord) -> bool:
    """Whether the job ended and its nodes are clean."""
    return job.state.ended and not job.flags


def held(job: JobRecord) -> bool:
    """Whether the job is pending in the hold of a requeue, its nodes clean."""
    return job.hold is Hold.REQUEUED and not job.flags
