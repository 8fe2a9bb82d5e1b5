"""A cluster to break things on, as a run uses it, and the simulated one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from activities.scheduler.protocol import ClusterReading, JobRecord, JobState
from recovery.model import NodeName
from tests.chaos.jobs import spec_of
from tests.chaos.journal import calls_in
from tests.chaos.kinds import JobKind
from tests.chaos.plan import Plan, PlannedJob
from tests.chaos.records import Call, Outage, Party
from tests.chaos.tail import Tail
from tests.simulator.running import RunningSimulator, running_simulator
from workers.simulator.journal import JOURNAL

NODES = 80
REQUEUE_DELAY_S = 6.0
"""Of Slurm's 121 s so much is left that a run sees the delay and does not wait for it."""
OWNER = "researcher"

Limit = Literal[JobState.TIMEOUT, JobState.OUT_OF_MEMORY, JobState.PREEMPTED]


class Arena(Protocol):
    """One cluster. What people and hardware do raises the errors of `activities.scheduler.protocol`: `Refused` also
    where this kind of cluster is not for it."""

    @property
    def settings(self) -> dict[str, str]:
        """How relight reaches the cluster."""
        ...

    @property
    def tells_late(self) -> timedelta:
        """How long after a call took effect it may stand in the scheduler's records."""
        ...

    def user_excluded(self, job: PlannedJob) -> tuple[NodeName, ...]:
        """What the job's owner excludes: a node that it would not get anyway, so that the others keep theirs."""
        ...

    async def submit(self, job: PlannedJob) -> str:
        """Submit the job and return its id."""
        ...

    async def jobs(self) -> ClusterReading:
        """Read all jobs."""
        ...

    async def record(self, job_id: str) -> JobRecord:
        """What the scheduler shows of a job."""
        ...

    async def cancel(self, job_id: str) -> None:
        """The owner's ``scancel``."""
        ...

    async def hold(self, job_id: str) -> None:
        """An administrator's ``scontrol hold``."""
        ...

    async def release(self, job_id: str) -> None:
        """An administrator's ``scontrol release``."""
        ...

    async def requeue(self, job_id: str) -> None:
        """An administrator's ``scontrol requeue``."""
        ...

    async def end_attempt(self, job_id: str, state: Limit) -> None:
        """A limit or the kernel ends what runs."""
        ...

    async def fail_node(self, node: str) -> None:
        """Let a node die with all that runs there."""
        ...

    async def restore_node(self, node: str) -> None:
        """Bring it back."""
        ...

    async def kill(self, away_s: float) -> None:
        """SIGKILL the controller and start it again after `away_s`."""
        ...

    async def stop_clock(self, for_s: float) -> None:
        """Let the controller stand still."""
        ...

    async def kill_node_daemon(self, away_s: float) -> None:
        """SIGKILL what serves one node, not what runs there, and start it again after `away_s`."""
        ...

    async def spoil_answers(self, plan: Plan) -> None:
        """From now on the scheduler's answers to relight are lost, late and doubled as `plan` wants it."""
        ...

    async def mend_answers(self) -> None:
        """From now on every call is answered."""
        ...

    @property
    def logs(self) -> tuple[Path, ...]:
        """The scheduler's own records, as files."""
        ...

    def new_calls(self) -> int:
        """How many calls of ours took effect since this was last asked."""
        ...

    def calls(self) -> tuple[Call, ...]:
        """All calls that changed a job, from the scheduler's own records."""
        ...


class SimulatedArena:
    """The simulated cluster. When its process is killed the whole cluster loses its power: what ran is requeued."""

    def __init__(self, simulator: RunningSimulator, outages: list[Outage]) -> None:
        self._simulator = simulator
        self._cluster = simulator.cluster
        self._directory = simulator.directory.absolute()
        self._outages = outages
        self._fresh = Tail(self._directory / JOURNAL)
        self._spoilt: Plan | None = None
        self._undisturbed = asyncio.Lock()
        """A submission whose answer is lost would leave a job that nobody knows."""

    @property
    def settings(self) -> dict[str, str]:
        return {"kind": "simulated", "socket": str(self._simulator.socket)}

    @property
    def tells_late(self) -> timedelta:
        return timedelta()

    def user_excluded(self, job: PlannedJob) -> tuple[NodeName, ...]:
        return (f"node{NODES:02}",) if job.kind is JobKind.OWN_EXCLUSIONS else ()

    async def submit(self, job: PlannedJob) -> str:
        async with self._undisturbed:
            return await self._cluster.submit(spec_of(job, self._directory, self.user_excluded(job)))

    async def jobs(self) -> ClusterReading:
        return await self._simulator.scheduler.jobs()

    async def record(self, job_id: str) -> JobRecord:
        return await self._simulator.scheduler.job(job_id)

    async def cancel(self, job_id: str) -> None:
        await self._cluster.cancel(job_id, by=OWNER)

    async def hold(self, job_id: str) -> None:
        await self._cluster.hold(job_id, admin=True)

    async def release(self, job_id: str) -> None:
        await self._cluster.release(job_id, by=OWNER)

    async def requeue(self, job_id: str) -> None:
        await self._cluster.requeue(job_id)

    async def end_attempt(self, job_id: str, state: Limit) -> None:
        await self._cluster.end_attempt(job_id, state)

    async def fail_node(self, node: str) -> None:
        await self._cluster.fail_node(node)

    async def restore_node(self, node: str) -> None:
        await self._cluster.restore_node(node)

    async def kill(self, away_s: float) -> None:
        async with self._undisturbed:
            since = datetime.now(UTC)
            await self._simulator.kill()
            await asyncio.sleep(away_s)
            await self._simulator.start()
            if self._spoilt is not None:
                await self.spoil_answers(self._spoilt)
            self._note(since)

    async def stop_clock(self, for_s: float) -> None:
        async with self._undisturbed:
            since = datetime.now(UTC)
            self._simulator.process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(for_s)
            finally:
                self._simulator.process.send_signal(signal.SIGCONT)
            self._note(since, fatal=False)

    async def kill_node_daemon(self, away_s: float) -> None:
        raise NotHere("nothing serves a single node of the simulated cluster")

    async def spoil_answers(self, plan: Plan) -> None:
        self._spoilt = plan
        await self._cluster.inject(seed=plan.seed, rates=plan.faults, delay_s=plan.delay_s)

    async def mend_answers(self) -> None:
        self._spoilt = None
        await self._cluster.inject(seed=0, rates={})

    @property
    def logs(self) -> tuple[Path, ...]:
        return (self._directory / JOURNAL,)

    def new_calls(self) -> int:
        return sum(call.ours and call.accepted for call in calls_in(self._fresh.lines()))

    def calls(self) -> tuple[Call, ...]:
        return tuple(calls_in((self._directory / JOURNAL).read_text().splitlines()))

    def _note(self, since: datetime, *, fatal: bool = True) -> None:
        self._outages.append(Outage(party=Party.SCHEDULER, since=since, until=datetime.now(UTC), fatal=fatal))


class NotHere(Exception):
    """This kind of cluster is not for such a blow."""


@asynccontextmanager
async def simulated_arena(directory: Path, outages: list[Outage]) -> AsyncIterator[SimulatedArena]:
    """A simulated cluster of its own for one run."""
    options = ("--nodes", str(NODES), "--requeue-delay-s", str(REQUEUE_DELAY_S), "--min-job-age-s", "3600")
    async with running_simulator(directory, *options) as simulator:
        yield SimulatedArena(simulator, outages)
