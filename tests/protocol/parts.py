"""Orders and records as these tests need them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from activities.scheduler.protocol import JobRecord, JobState
from activities.scheduler.steps import ActOrder
from recovery.model import Action, Advice, JobKey

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LIFETIME = timedelta(minutes=15)
JOB = JobKey(cluster="alpha", job_id="1", submitted_at=START)


def an_advice(**changes: Any) -> Advice:
    """Restart attempt 0 without node03, given at `START`."""
    standard: dict[str, Any] = {
        "job": JOB,
        "attempt": 0,
        "generation": 1,
        "action": Action.RESTART_EXCLUDE,
        "exclude": ("node03",),
        "reason": "the GPU on node03 has fallen off the bus",
        "rule": "culprit_named",
        "advised_at": START,
        "expires_at": START + LIFETIME,
    }
    return Advice(**(standard | changes))


def an_order(*, submitted_at: datetime = START, advice: Advice | None = None, **changes: Any) -> ActOrder:
    """An order for `an_advice`."""
    return ActOrder(advice=advice or an_advice(), submitted_at=submitted_at, **changes)


def a_record(state: JobState = JobState.RUNNING, **changes: Any) -> JobRecord:
    """Job 1, submitted at `START`, which the user keeps off node01."""
    standard: dict[str, Any] = {"job_id": "1", "state": state, "submitted_at": START, "excluded_nodes": ("node01",)}
    return JobRecord(**(standard | changes))
