"""A real Slurm cluster to break things on. relight reaches it through a proxy that loses and delays answers; people and
the harness reach it directly. Nothing ends by a limit or by the kernel here: a time limit lasts a minute at least, and
nothing limits the memory."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import ClusterReading, JobRecord
from activities.scheduler.simulated_wire import Inject
from activities.scheduler.slurm_words import error_from
from recovery.model import NodeName
from tests.chaos.answers import answered
from tests.chaos.arena import Limit, NotHere
from tests.chaos.jobs import AIM, STEP_S, comment, fault_iteration, iterations
from tests.chaos.kinds import FAULTS, JobKind
from tests.chaos.plan import Plan, PlannedJob
from tests.chaos.proxy import Proxy, proxy
from tests.chaos.records import Call, Outage, Party, Verb
from tests.chaos.slurmctld_log import Crash, calls_in
from tests.chaos.tail import Tail
from tests.slurm.cluster import NODES, ClusterFailed, SlurmCluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"
LAST_NODE = NODES[-1]
OUT_OF_USE = {"DOWN", "DRAIN", "DRAINED", "DRAINING"}
SAVED_AFTER_S = 6.0
"""slurmctld saves new jobs every five seconds; one that it forgot would be nobody's."""
_PORT = re.compile(r"^SlurmctldPort=(\d+)$", re.MULTILINE)


class RealArena:
    """A real cluster on this host."""

    def __init__(self, slurm: SlurmCluster, conf: Path, through: Proxy, outages: list[Outage]) -> None:
        self._slurm = slurm
        self._conf = conf
        self._proxy = through
        self._outages = outages
        self._scheduler = SlurmCli(LocalRunner(slurm_conf=str(slurm.conf)))
        self._log = slurm.directory / "log" / "slurmctld.log"
        self._fresh = Tail(self._log)
        self._kinds: dict[str, JobKind] = {}
        self._cancelled: set[str] = set()
        self._crashes: list[Crash] = []
        self._nodes_hit = 0
        self._undisturbed = asyncio.Lock()
        """A submission that is lost would be another's job id."""
        self._submitted_at_s = 0.0

    @property
    def settings(self) -> dict[str, str]:
        return {"kind": "cli", "slurm_conf": str(self._conf)}

    @property
    def tells_late(self) -> timedelta:
        """A requeue stands in the log once the processes are gone."""
        return timedelta(seconds=5)

    def user_excluded(self, job: PlannedJob) -> tuple[NodeName, ...]:
        return (LAST_NODE,) if job.kind is JobKind.OWN_EXCLUSIONS else ()

    # --- jobs -----------------------------------------------------------------------------------------------------

    async def submit(self, job: PlannedJob) -> str:
        settings = {
            "TRAIN_PY": EXAMPLES / "train.py",
            "FAULT": FAULTS.get(job.kind, "none"),
            "FAULT_ITERATION": fault_iteration(job),
            "ITERATIONS": iterations(job),
            "STEP_S": STEP_S,
            "HOSTNAMES": "scontrol show hostnames",
        }
        options = [
            f"--nodes={job.nodes}",
            f"--comment={comment(job)}",
            f"--export={','.join(['ALL', *(f'{name}={value}' for name, value in settings.items())])}",
            *(f"--exclude={node}" for node in self.user_excluded(job)),
            *(["--no-requeue"] if job.kind is JobKind.NO_REQUEUE else []),
        ]
        head, mark, rest = (EXAMPLES / "job.sbatch").read_text().partition("\ntrain_py=")
        async with self._undisturbed:
            job_id = await asyncio.to_thread(self._slurm.sbatch, head + AIM + mark + rest, *options)
            self._submitted_at_s = time.monotonic()
        self._kinds[job_id] = job.kind
        return job_id

    async def jobs(self) -> ClusterReading:
        return await self._scheduler.jobs()

    async def record(self, job_id: str) -> JobRecord:
        return await self._scheduler.job(job_id)

    # --- people ---------------------------------------------------------------------------------------------------

    async def cancel(self, job_id: str) -> None:
        self._cancelled.add(job_id)
        await self._scheduler.cancel(job_id)

    async def hold(self, job_id: str) -> None:
        await self._scontrol("hold", job_id)

    async def release(self, job_id: str) -> None:
        await self._scontrol("release", job_id)

    async def requeue(self, job_id: str) -> None:
        await self._scontrol("requeue", job_id)

    async def end_attempt(self, job_id: str, state: Limit) -> None:
        raise NotHere(f"nothing ends as {state.value} on this cluster")

    async def _scontrol(self, *words: str) -> str:
        try:
            return await asyncio.to_thread(self._slurm.run, "scontrol", *words)
        except ClusterFailed as error:
            raise error_from(str(error), about=" ".join(words)) from error

    # --- the house ------------------------------------------------------------------------------------------------

    async def fail_node(self, node: str) -> None:
        await self._scontrol("update", f"NodeName={node}", "State=DOWN", "Reason=chaos")

    async def restore_node(self, node: str) -> None:
        # One that is up, by registering again, takes no RESUME.
        states = {state for record in await self._scheduler.nodes() if record.name == node for state in record.states}
        if states & OUT_OF_USE:
            await self._scontrol("update", f"NodeName={node}", "State=RESUME")

    async def kill_node_daemon(self, away_s: float) -> None:
        node = NODES[self._nodes_hit % len(NODES)]
        self._nodes_hit += 1
        self._slurm.kill_slurmd_alone(node)
        await asyncio.sleep(away_s)
        self._slurm.restart_slurmd(node)

    async def kill(self, away_s: float) -> None:
        async with self._undisturbed:
            await asyncio.sleep(max(0.0, self._submitted_at_s + SAVED_AFTER_S - time.monotonic()))
            since = datetime.now(UTC)
            self._slurm.kill_slurmctld()
            await asyncio.sleep(away_s)
            # In this thread: the daemon dies with the thread that started it.
            self._slurm.restart_slurmctld()
            self._note(since)
        reading = await answered(self._scheduler.jobs)
        restarts = {job.job_id: job.restart_count for job in reading.jobs}
        self._crashes.append(Crash(killed_at=since, read_at=reading.read_at, restarts=restarts))

    async def stop_clock(self, for_s: float) -> None:
        async with self._undisturbed:
            since = datetime.now(UTC)
            self._slurm.stall_slurmctld()
            try:
                await asyncio.sleep(for_s)
            finally:
                self._slurm.continue_slurmctld()
            self._note(since, fatal=False)

    async def spoil_answers(self, plan: Plan) -> None:
        self._proxy.inject(Inject(seed=plan.seed, rates=plan.faults, delay_s=plan.delay_s))

    async def mend_answers(self) -> None:
        self._proxy.inject(Inject())
        # Slurm finds out what a crash made it believe wrongly when its nodes register, which takes minutes.
        await answered(lambda: self._scontrol("reconfigure"))
        for node in NODES:
            await answered(partial(self.restore_node, node))

    def _note(self, since: datetime, *, fatal: bool = True) -> None:
        self._outages.append(Outage(party=Party.SCHEDULER, since=since, until=datetime.now(UTC), fatal=fatal))

    # --- the records ----------------------------------------------------------------------------------------------

    @property
    def logs(self) -> tuple[Path, ...]:
        return (self._log, *sorted(self._log.parent.glob("slurmd-*.log")))

    def new_calls(self) -> int:
        return sum(call.ours for call in calls_in(self._fresh.lines(), self._is_ours))

    def calls(self) -> tuple[Call, ...]:
        lines = self._log.read_text(errors="replace").splitlines()
        return tuple(calls_in(lines, self._is_ours, self._crashes))

    def _is_ours(self, verb: Verb, job_id: str) -> bool:
        """In the harness only people hold, a person cancels no job that relight would stop, and requeues none that
        relight would."""
        if verb is Verb.CANCEL:
            return job_id not in self._cancelled
        if verb is Verb.REQUEUE:
            return self._kinds.get(job_id) is not JobKind.REQUEUED
        return verb not in (Verb.HOLD, Verb.NODE_FAILURE)


@asynccontextmanager
async def real_arena(directory: Path, outages: list[Outage]) -> AsyncIterator[RealArena]:
    """A real cluster of its own for one run."""
    slurm = SlurmCluster(extra_conf="MinJobAge=3600")
    slurm.start()
    try:
        port = _PORT.search(slurm.conf.read_text())
        assert port is not None
        async with proxy(int(port[1])) as through:
            conf = directory / "slurm.conf"
            conf.write_text(_PORT.sub(f"SlurmctldPort={through.port}", slurm.conf.read_text()))
            yield RealArena(slurm, conf, through, outages)
    finally:
        slurm.stop()
