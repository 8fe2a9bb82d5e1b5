"""One GPU fault on the real cluster, and when each step of its recovery was there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import asyncpg
from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks.polling import until_some
from benchmarks.service import CLUSTER
from recovery.audit import AuditKind
from recovery.model import MilestoneKind
from tests.slurm.cluster import SlurmCluster
from workflows.job import JobRecovery
from workflows.state import RecoveryState

EXAMPLES = Path(__file__).parents[1] / "examples" / "training"
FAULT_LINE = b"GPU has fallen off the bus"
BAD_NODE = "node02"
SETTINGS = {
    "TRAIN_PY": EXAMPLES / "train.py",
    "FAULT": "xid79",
    "FAULT_NODE": BAD_NODE,
    "FAULT_ITERATION": 21,
    "CHECKPOINT_EVERY": 10,
    "STEP_S": 0.2,
    "ITERATIONS": 100_000,
}
STAT_EVERY_S = 0.01
TIMEOUT_S = 90.0
STORED = f"""
SELECT recorded_at FROM relight.audit_event
WHERE cluster = $1 AND job_id = $2 AND attempt = 0 AND kind = '{AuditKind.ADVISED.value}'
ORDER BY at, key LIMIT 1
"""


class RecoveryFailed(Exception):
    """The recovery did not take the course that is to be timed; its figures would say nothing."""


@dataclass(frozen=True)
class Recovery:
    """Seconds from the moment at which the fault line was in the log."""

    advised_s: float
    stored_s: float
    """When the audit trail had the advice."""
    acted_s: float
    """When a fresh read of Slurm showed the requeue."""
    resumed_s: float
    """When the first new iteration was read."""


async def recover_once(slurm: SlurmCluster, client: Client, audit_dsn: str, *, linger_s: float) -> Recovery:
    """Run one job into its fault, time its recovery, and end it. Raises `RecoveryFailed`."""
    variables = {**SETTINGS, "FAULT_LINGER_S": linger_s}
    exports = ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])
    job_id = slurm.sbatch((EXAMPLES / "job.sbatch").read_text(), f"--export={exports}")
    log = slurm.directory / "work" / f"relight-example-{job_id}.log"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            faulted_at = await _line_written(log, FAULT_LINE)
            state = await _resumed(client, job_id)
            stored_at = await until_some(lambda: _advice_stored(audit_dsn, job_id))
    except TimeoutError:
        story = _story(await _state(client, job_id))
        raise RecoveryFailed(f"job {job_id} had not resumed {TIMEOUT_S:g} s after its submission: {story}") from None
    finally:
        await asyncio.to_thread(slurm.run, "scancel", job_id)
    _check(state)
    return Recovery(
        advised_s=_moment(state, MilestoneKind.ADVISED, 0) - faulted_at,
        stored_s=stored_at.timestamp() - faulted_at,
        acted_s=_moment(state, MilestoneKind.ACTED, 0) - faulted_at,
        resumed_s=_moment(state, MilestoneKind.RESUMED, 1) - faulted_at,
    )


async def _line_written(log: Path, text: bytes) -> float:
    """Return when `text` was in `log`, by the file's own time of change, seen within `STAT_EVERY_S`."""

    async def look() -> float | None:
        info = log.stat() if log.exists() else None  # noqa: ASYNC240 - a local file, and nothing else to wait for
        return info.st_mtime if info is not None and text in log.read_bytes() else None  # noqa: ASYNC240

    return await until_some(look, every_s=STAT_EVERY_S)


async def _resumed(client: Client, job_id: str) -> RecoveryState:
    async def look() -> RecoveryState | None:
        state = await _state(client, job_id)
        if state is None:
            return None
        return state if state.closed or _at(state, MilestoneKind.RESUMED, 1) else None

    return await until_some(look)


async def _state(client: Client, job_id: str) -> RecoveryState | None:
    handle = client.get_workflow_handle_for(JobRecovery.run, f"recovery/{CLUSTER}/{job_id}")
    try:
        return await handle.query(JobRecovery.state)
    except RPCError:
        return None


async def _advice_stored(audit_dsn: str, job_id: str) -> datetime | None:
    connection = await asyncpg.connect(audit_dsn)
    try:
        stored: datetime | None = await connection.fetchval(STORED, CLUSTER, job_id)
    finally:
        await connection.close()
    return stored


def _check(state: RecoveryState) -> None:
    """The fault was found, blamed on its node, and answered by one requeue."""
    culprits = state.verdict.culprits if state.verdict else ()
    if state.closed or state.attempt != 1 or culprits != (BAD_NODE,):
        raise RecoveryFailed(f"the recovery took another course: {_story(state)}")


def _moment(state: RecoveryState, kind: MilestoneKind, attempt: int) -> float:
    at = _at(state, kind, attempt)
    if at is None:
        raise RecoveryFailed(f"no milestone {kind.value} of attempt {attempt}: {_story(state)}")
    return at.timestamp()


def _at(state: RecoveryState, kind: MilestoneKind, attempt: int) -> datetime | None:
    milestones = (one for one in state.milestones if one.kind is kind and one.attempt == attempt)
    return next((one.at for one in milestones), None)


def _story(state: RecoveryState | None) -> str:
    return "; ".join(f"{entry.kind} {entry.text}" for entry in state.timeline) if state else "it was never adopted"
