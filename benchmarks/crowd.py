"""Many healthy jobs on the simulated cluster: one process each that sleeps, and one writer for all their logs."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from activities.scheduler.simulated import SimulatedCluster, SimulatedScheduler
from activities.scheduler.simulated_wire import JobSpec
from benchmarks.polling import until, until_some
from benchmarks.service import CLUSTER
from benchmarks.training_log import iteration_lines

STEP_S = 1.0
TURNS_PER_STEP = 20
COMMENT = json.dumps({"relight": {"mode": "act"}})


async def submit_crowd(cluster: SimulatedCluster, scheduler: SimulatedScheduler, count: int) -> list[Path]:
    """Submit `count` jobs of one node and return their logs once all run."""
    spec = JobSpec(argv=("sleep", "86400"), name="healthy", comment=COMMENT, output="%x-%j.log")
    for _ in range(count):
        await cluster.submit(spec)

    async def look() -> list[Path] | None:
        jobs = (await scheduler.jobs()).jobs
        return [Path(job.stdout) for job in jobs] if all(job.nodes for job in jobs) else None

    return await until_some(look)


class Fuse:
    """Jobs that run until the fuse is lit, and then all fail at once; their next attempts run on."""

    def __init__(self, pipe: Path) -> None:
        """`pipe`: where to make the named pipe that all of them wait at, so that waiting costs nothing."""
        self._pipe = pipe
        os.mkfifo(pipe)
        pipe.chmod(0o666)
        self.script = (
            f'[ -n "$SLURM_RESTART_COUNT" ] && exec sleep 86400; cat {shlex.quote(str(self._pipe))};'
            " echo \"OSError: [Errno 5] Input/output error: '/lustre/data/shard-0001.bin'\"; exit 1"
        )
        """What each of them runs."""

    async def submit(self, cluster: SimulatedCluster, scheduler: SimulatedScheduler, count: int) -> None:
        """Submit `count` jobs of one node and wait until all run."""
        spec = JobSpec(argv=("sh", "-c", self.script), name="doomed", comment=COMMENT, output="%x-%j.log")
        for _ in range(count):
            await cluster.submit(spec)

        async def all_run() -> bool:
            return all(job.nodes for job in (await scheduler.jobs()).jobs)

        await until(all_run)

    def light(self) -> None:
        """Let all of them fail."""
        self._pipe.open("wb").close()


@asynccontextmanager
async def growing(logs: Sequence[Path]) -> AsyncIterator[None]:
    """Let every log grow by an iteration each `STEP_S` while the context is open, spread over the step."""
    writer = asyncio.create_task(_write_on(logs))
    try:
        yield
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


async def _write_on(logs: Sequence[Path]) -> None:
    files = [log.open("ab", buffering=0) for log in logs]
    loop = asyncio.get_running_loop()
    due, turn = loop.time(), 0
    try:
        while True:
            step, part = divmod(turn, TURNS_PER_STEP)
            for file in files[part::TURNS_PER_STEP]:
                file.write(iteration_lines(step + 1, step_s=STEP_S).encode())
            turn += 1
            due += STEP_S / TURNS_PER_STEP
            await asyncio.sleep(max(0.0, due - loop.time()))
    finally:
        for file in files:
            file.close()


async def count_followed(client: Client, count: int) -> int:
    """Return of how many of the first `count` jobs the watch has told an iteration in its last heartbeat."""
    followed = 0
    for job_id in range(1, count + 1):
        description = await client.get_workflow_handle(f"recovery/{CLUSTER}/{job_id}").describe()
        beats = [activity.heartbeat_details.payloads for activity in description.raw_description.pending_activities]
        memories = [json.loads(payload.data) for payloads in beats for payload in payloads]
        followed += any(memory["monitor"]["progress"]["iteration"] for memory in memories)
    return followed
