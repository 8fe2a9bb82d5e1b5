"""One drill: a source goes away, a job fails meanwhile, the source comes back, and then a job really hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

from temporalio.service import RPCError

from activities.scheduler.protocol import Hold, JobState
from recovery.audit import AuditKind
from recovery.model import Value
from tests.drills.clusters import Doomed
from tests.drills.house import BLIND_AFTER_S, INTERVAL_S, House, all_followed
from tests.drills.outages import Outage
from workflows.state import RecoveryState

SHORTEST_S = 5.0
"""How much longer than any silence is borne an outage lasts, at least."""
PATIENCE_S = 240.0
"""For what has to happen at some time, however busy the machine is."""
LOOK_EVERY_S = 0.5
LEEWAY_S = 4.0
"""What a busy machine may add to an interval, and so much more for each hundred jobs."""


class DrillResult(Value):
    """What came of one drill. Times are seconds; None: it has none."""

    outage: str
    jobs: int
    lasted_s: float
    blind_after_s: float | None
    """Until every job was shown as blind."""
    acts: int
    """Jobs that were well and were touched, or were to be touched."""
    seen_after_s: float | None
    """After the source's return, until relight saw the last job again."""
    shown_after_s: float | None
    """... and until no job was shown as blind."""
    lines_lost: int
    violations: tuple[str, ...]


class Drill:
    """Carries out one outage in a house; the last voice of its crowd is the one that hangs in the end."""

    def __init__(self, house: House, outage: Outage) -> None:
        self._house = house
        self._outage = outage
        self._well = house.crowd.voices[:-1]
        self._hangs = house.crowd.voices[-1]
        self._doomed = Doomed(house.cluster)
        self._violations: list[str] = []

    async def run(self) -> DrillResult:
        """Drill, and leave the house as it was but for the job that hung, which belongs to it no more."""
        house, outage = self._house, self._outage
        await self._doomed.start()
        await self._within(PATIENCE_S, self._doomed_is_guarded, "the job that is to fail is not under guard")
        await all_followed(house)
        began = datetime.now(UTC)
        async with outage.away(house):
            blind_after_s = await self._all_are_shown_blind(began) if outage.blinds else None
            if outage.source:
                await self._within(PATIENCE_S, self._source_is_shown_blind, f"{outage.source} is not shown as blind")
            await self._doomed.fail()
            if outage.sees_crashes:
                await self._within(PATIENCE_S, self._is_back, "the job that failed in the outage was not restarted")
            lasts_s = outage.dark_s + house.hang_after_s + SHORTEST_S
            await asyncio.sleep(max(0.0, lasts_s - (datetime.now(UTC) - began).total_seconds()))
        returned = datetime.now(UTC)
        shown_after_s = await self._all_are_shown_in_sight(returned) if outage.blinds else None
        await self._within(PATIENCE_S, self._no_source_is_shown_blind, f"{outage.source} is still shown as blind")
        await self._within(PATIENCE_S, self._is_back, "the job that failed in the outage was never restarted")
        lines_lost = await self._lines_lost()
        states = await self._states()
        seen_after_s = self._seen_after_s(states, returned) if outage.blinds else None
        acts = await self._acts(states)
        await self._a_hang_is_found()
        await self._all_is_on_record()
        return DrillResult(
            outage=outage.name,
            jobs=len(self._well),
            lasted_s=(returned - began).total_seconds(),
            blind_after_s=blind_after_s,
            acts=acts,
            seen_after_s=seen_after_s,
            shown_after_s=shown_after_s,
            lines_lost=lines_lost,
            violations=tuple(self._violations),
        )

    async def _all_are_shown_blind(self, began: datetime) -> float:
        ids = frozenset(voice.job_id for voice in self._well)

        async def all_blind() -> bool:
            return await self._house.are_blind(ids)

        limit_s = PATIENCE_S + self._outage.dark_s + BLIND_AFTER_S
        await self._within(limit_s, all_blind, "not every job is shown as blind")
        return (datetime.now(UTC) - began).total_seconds()

    async def _all_are_shown_in_sight(self, returned: datetime) -> float:
        ids = frozenset(voice.job_id for voice in self._well)

        async def none_blind() -> bool:
            return await self._house.are_in_sight(ids)

        await self._within(PATIENCE_S, none_blind, "a job is still shown as blind")
        return (datetime.now(UTC) - returned).total_seconds()

    def _seen_after_s(self, states: dict[str, RecoveryState], returned: datetime) -> float:
        """By relight's own times."""
        seen = [
            max((entry.at for entry in state.timeline if entry.kind == AuditKind.BLIND.value), default=returned)
            for state in states.values()
        ]
        after_s = max(0.0, (max(seen) - returned).total_seconds())
        most_s = INTERVAL_S + self._outage.returns_s + LEEWAY_S * (1 + len(states) / 100)
        if after_s > most_s:
            self._violations.append(f"the last job was seen again after {after_s:.1f} s, more than {most_s:.1f} s")
        return after_s

    async def _states(self) -> dict[str, RecoveryState]:
        return {voice.job_id: await self._house.state(voice.job_id) for voice in self._well}

    async def _acts(self, states: dict[str, RecoveryState]) -> int:
        """Count the jobs that Slurm shows as touched, or that relight has advice for."""
        records = await self._house.cluster.records()
        touched = []
        for voice in self._well:
            job, state = records[voice.job_id], states[voice.job_id]
            moved = job.restart_count or job.hold is not Hold.NONE or job.state is not JobState.RUNNING
            if moved or job.admin_comment or job.excluded_nodes or state.advice is not None:
                touched.append(voice.job_id)
        if touched:
            self._violations.append(f"{len(touched)} jobs that were well were not left alone: {', '.join(touched[:5])}")
        return len(touched)

    async def _lines_lost(self) -> int:
        said = [(voice, voice.said) for voice in self._well]

        def missed() -> int:
            return sum(self._house.ear.missed(voice, up_to) for voice, up_to in said)

        async def all_heard() -> bool:
            return not missed()

        with suppress(TimeoutError):
            await _until(all_heard, PATIENCE_S)
        if missed():
            self._violations.append(f"{missed()} lines were never heard")
        return missed()

    async def _a_hang_is_found(self) -> None:
        self._hangs.muted = True
        self._house.crowd.voices.remove(self._hangs)

        async def restarted() -> bool:
            return (await self._house.cluster.records())[self._hangs.job_id].restart_count == 1

        await self._within(PATIENCE_S, restarted, "a hang after the return was not found")

    async def _all_is_on_record(self) -> None:
        """No event of the job that failed is lost."""

        async def delivered() -> bool:
            return not (await self._house.state(self._doomed.job_id)).unaudited

        await self._within(PATIENCE_S, delivered, "events wait for PostgreSQL for ever")
        stored = len({event.key for event in await self._house.audited(self._doomed.job_id)})
        told = (await self._house.state(self._doomed.job_id)).audit_count
        if stored < told:
            self._violations.append(f"{told - stored} of {told} events of the job that failed are not in PostgreSQL")

    async def _source_is_shown_blind(self) -> bool:
        return self._outage.source in await self._house.blind_sources()

    async def _no_source_is_shown_blind(self) -> bool:
        return not await self._house.blind_sources()

    async def _doomed_is_guarded(self) -> bool:
        with suppress(RPCError):
            return (await self._house.state(self._doomed.job_id)).audit_count > 0
        return False

    async def _is_back(self) -> bool:
        job = (await self._house.cluster.records())[self._doomed.job_id]
        return job.restart_count == 1 and job.state is JobState.RUNNING

    async def _within(self, seconds: float, holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        try:
            await _until(holds, seconds)
        except TimeoutError:
            self._violations.append(otherwise)


async def _until(holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError
        await asyncio.sleep(LOOK_EVERY_S)
