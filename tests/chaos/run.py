"""One run: set the stage, submit the jobs, let the blows fall, wait until all is quiet, and judge what is on record."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from activities.audit import AuditTrail, AuditUnavailable
from activities.scheduler.protocol import JobRecord, SchedulerError
from recovery.audit import AuditEvent
from tests.chaos.arena import simulated_arena
from tests.chaos.histories import existing, replay
from tests.chaos.jobs import has_settled
from tests.chaos.mischief import Mischief
from tests.chaos.oracle import is_told, judge
from tests.chaos.plan import Plan
from tests.chaos.records import IN_FLIGHT, JobHistory, Observed
from tests.chaos.report import RunResult
from tests.chaos.servers import Servers
from tests.chaos.stage import MAY_BE_HELD_FOR, OpenArena, Stage, stage
from tests.chaos.trails import Trails

LOOK_EVERY_S = 1.0
PATIENCE_S = 480.0
"""How long after the last blow every job may take to get where it has to, and the last event to be stored: an act on a
job that runs, to which the governor gave no answer, is tried again after five minutes."""


async def run(
    servers: Servers,
    plan: Plan,
    open_arena: OpenArena = simulated_arena,
    *,
    mutant: str = "",
    keep: Path | None = None,
) -> RunResult:
    """Carry `plan` out and judge it. `mutant`: the name of a bug that is planted in relight's processes; `keep`: where
    the logs of a run go in which something was broken."""
    started, began = time.monotonic(), datetime.now(UTC)
    name = f"chaos-{plan.seed}-{int(time.time() * 1000)}"
    async with stage(servers, name, open_arena, workers=len(plan.lives_s), mutant=mutant) as on_stage:
        mischief = Mischief(plan, on_stage)
        job_ids = await mischief.do()
        jobs = await _quiet(on_stage, plan, job_ids)
        workflow_ids = [f"cluster/{name}", *(f"recovery/{name}/{job_id}" for job_id in job_ids)]
        replayed, failures = await replay(servers.address, workflow_ids)
        observed = Observed(
            jobs=jobs,
            outages=tuple(outage for outage in servers.outages if outage.until > began),
            in_flight=IN_FLIGHT + timedelta(seconds=plan.delay_s) + on_stage.arena.tells_late,
            may_be_held_for=MAY_BE_HELD_FOR,
            replay_failures=failures,
        )
        violations = judge(observed)
        log = on_stage.story() if violations else ""
        if violations and keep is not None:
            on_stage.keep(keep)
            (keep / name / "observed.json").write_text(observed.model_dump_json(indent=1))
    took_s = time.monotonic() - started
    return RunResult.of(plan, observed, mischief.fallen, violations, replayed=replayed, took_s=took_s, log=log)


async def _quiet(on_stage: Stage, plan: Plan, job_ids: tuple[str, ...]) -> tuple[JobHistory, ...]:
    """Return what is on record of the jobs, once each is where it has to come to and all of it is told, or patience
    has ended."""
    deadline = time.monotonic() + PATIENCE_S
    trails = Trails(AuditTrail(on_stage.servers.dsn), on_stage.name)
    try:
        while True:
            late = time.monotonic() > deadline
            with suppress(SchedulerError, AuditUnavailable):
                if late or await _settled(on_stage, plan, job_ids):
                    jobs = await _histories(on_stage, plan, job_ids, trails)
                    if late or (all(is_told(job) for job in jobs) and on_stage.spool_is_empty):
                        return jobs
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        await trails.close()


async def _settled(on_stage: Stage, plan: Plan, job_ids: tuple[str, ...]) -> bool:
    records = {job.job_id: job for job in (await on_stage.arena.jobs()).jobs}
    return all(has_settled(job.kind, records[job_id]) for job, job_id in zip(plan.jobs, job_ids, strict=True))


async def _histories(on_stage: Stage, plan: Plan, job_ids: tuple[str, ...], trails: Trails) -> tuple[JobHistory, ...]:
    cluster = on_stage.name
    guarded = await existing(on_stage.servers.address, [f"recovery/{cluster}/{job_id}" for job_id in job_ids])
    told: dict[str, tuple[AuditEvent, ...]] = {job_id: await trails.of_job(job_id) for job_id in job_ids}
    records: dict[str, JobRecord] = {job.job_id: job for job in (await on_stage.arena.jobs()).jobs}
    calls = on_stage.arena.calls()
    return tuple(
        JobHistory(
            kind=job.kind,
            user_excluded=on_stage.arena.user_excluded(job),
            record=records[job_id],
            calls=tuple(call for call in calls if call.job_id == job_id),
            holds=tuple(held for held in on_stage.holds.seen if held.job_id == job_id),
            events=tuple(event for event in told[job_id] if event.who != "watchdog"),
            of_watchdog=tuple(event for event in told[job_id] if event.who == "watchdog"),
            guarded=f"recovery/{cluster}/{job_id}" in guarded,
            settled=has_settled(job.kind, records[job_id]),
        )
        for job, job_id in zip(plan.jobs, job_ids, strict=True)
    )
