"""Lets the blows of a plan fall on a stage."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from activities.scheduler.protocol import Hold, JobRecord, JobState, JobUnknown, Refused
from tests.chaos.answers import answered
from tests.chaos.arena import NotHere
from tests.chaos.blows import Blow, BlowKind
from tests.chaos.crew import Kept
from tests.chaos.plan import Plan
from tests.chaos.stage import Stage

LOOK_EVERY_S = 0.02
RECOVERY_PATIENCE_S = 60.0
"""How long a blow on a recovery lies in wait for one after the other blows are over."""


class Mischief:
    """The blows of one run. `fallen` counts those that did fall."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._job_ids: dict[int, str] = {}
        self._ends_at_s = 0.0
        self.fallen: Counter[BlowKind] = Counter()

    async def do(self) -> tuple[str, ...]:
        """Submit the jobs and let all blows fall; return the jobs' ids, in the plan's order, once everything killed is
        back and the scheduler answers as it should."""
        self._ends_at_s = time.monotonic() + self._plan.window_s
        await self._stage.arena.spoil_answers(self._plan)
        async with asyncio.TaskGroup() as group:
            for job in self._plan.jobs:
                group.create_task(self._submit(job.place))
            group.create_task(self._lie_in_wait())
            for worker, lives_s in zip(self._stage.workers, self._plan.lives_s, strict=True):
                group.create_task(self._cut_short(worker, lives_s))
            for blow in self._plan.blows:
                group.create_task(self._fall(blow))
        await self._stage.arena.mend_answers()
        return tuple(self._job_ids[job.place] for job in self._plan.jobs)

    async def _submit(self, place: int) -> None:
        job = self._plan.jobs[place]
        await asyncio.sleep(job.at_s + place * LOOK_EVERY_S)
        self._job_ids[place] = await self._stage.arena.submit(job)

    async def _submitted(self, place: int) -> str:
        while place not in self._job_ids:
            await asyncio.sleep(LOOK_EVERY_S)
        return self._job_ids[place]

    # --- the workers ----------------------------------------------------------------------------------------------

    async def _cut_short(self, worker: Kept, lives_s: tuple[float, ...]) -> None:
        """Kill the worker again and again, each time so long after it began to serve."""
        for life_s in lives_s:
            await worker.serving()
            if time.monotonic() + life_s > self._ends_at_s:
                return
            await asyncio.sleep(life_s)
            await self._kill(worker)

    async def _lie_in_wait(self) -> None:
        """Kill all workers right after certain calls of theirs, for as long as the blows fall."""
        waiting, calls = list(self._plan.ambushes), 0
        while waiting and time.monotonic() < self._ends_at_s:
            await asyncio.sleep(LOOK_EVERY_S)
            calls += self._stage.arena.new_calls()
            if calls >= waiting[0]:
                waiting = [number for number in waiting if number > calls]
                await asyncio.gather(*map(self._kill, self._stage.workers))

    async def _kill(self, worker: Kept) -> None:
        self.fallen[BlowKind.KILL_WORKER] += await worker.kill()

    # --- all else -------------------------------------------------------------------------------------------------

    async def _fall(self, blow: Blow) -> None:
        await asyncio.sleep(blow.at_s)
        try:
            fell = await (self._hit_house(blow) if blow.job < 0 else self._hit_job(blow))
        except (Refused, JobUnknown, NotHere):
            return  # the job is past it, or the cluster is not for it
        self.fallen[blow.kind] += fell

    async def _hit_house(self, blow: Blow) -> bool:
        stage, for_s = self._stage, blow.lasts_s
        temporal, postgres = stage.servers.temporal, stage.servers.postgres
        blows: dict[BlowKind, Callable[[float], Awaitable[bool | None]]] = {
            BlowKind.KILL_TEMPORAL: temporal.kill,
            BlowKind.KILL_POSTGRES: postgres.kill,
            BlowKind.KILL_SCHEDULER: stage.arena.kill,
            BlowKind.KILL_NODE_DAEMON: stage.arena.kill_node_daemon,
            BlowKind.KILL_WATCHDOG: stage.watchdog.kill,
            BlowKind.STOP_WORKER: stage.workers[0].stop_clock,
            BlowKind.STOP_TEMPORAL: temporal.stop_clock,
            BlowKind.STOP_POSTGRES: postgres.stop_clock,
            BlowKind.STOP_SCHEDULER: stage.arena.stop_clock,
            BlowKind.FILL_TEMPORAL: temporal.fill_disk,
            BlowKind.FILL_POSTGRES: postgres.fill_disk,
            BlowKind.FILL_SPOOL: stage.fill_spool,
        }
        return await blows[blow.kind](for_s) is not False

    async def _hit_job(self, blow: Blow) -> bool:
        """What people and hardware do. A person whose command got no answer gives it again."""
        arena, job_id = self._stage.arena, await self._submitted(blow.job)
        if blow.in_recovery and not await self._recovers(job_id):
            return False
        blows: dict[BlowKind, Callable[[], Awaitable[None]]] = {
            BlowKind.CANCEL: lambda: arena.cancel(job_id),
            BlowKind.HOLD: lambda: arena.hold(job_id),
            BlowKind.RELEASE: lambda: arena.release(job_id),
            BlowKind.REQUEUE: lambda: arena.requeue(job_id),
            BlowKind.END_BY_LIMIT: lambda: arena.end_attempt(job_id, JobState.TIMEOUT),
            BlowKind.END_BY_KERNEL: lambda: arena.end_attempt(job_id, JobState.OUT_OF_MEMORY),
        }
        if blow.kind is BlowKind.FAIL_NODE:
            return await self._fail_a_node_of(job_id, blow.lasts_s)
        await answered(blows[blow.kind])
        return True

    async def _recovers(self, job_id: str) -> bool:
        """Wait until the job stands between two attempts."""
        while time.monotonic() < self._ends_at_s + RECOVERY_PATIENCE_S:
            record = await answered(lambda: self._stage.arena.record(job_id))
            between_attempts = record.state is JobState.PENDING and record.restart_count > 0
            if record.hold is Hold.REQUEUED or between_attempts:
                return True
            if record.state is JobState.COMPLETED:
                return False
            await asyncio.sleep(0.1)
        return False

    async def _fail_a_node_of(self, job_id: str, for_s: float) -> bool:
        arena = self._stage.arena
        record: JobRecord = await answered(lambda: arena.record(job_id))
        if not record.nodes:
            return False
        node = record.nodes[-1]
        await answered(lambda: arena.fail_node(node))
        await asyncio.sleep(for_s)
        await answered(lambda: arena.restore_node(node))
        return True
