"""Situations as policy's tests need them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.model import Action, Category, Confidence, Exclusion, JobKey, Progress, SymptomKind, Verdict
from recovery.optin import OptIn
from recovery.policy import Ending, PastAttempt, Situation

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB = JobKey(cluster="alpha", job_id="17", submitted_at=NOW - timedelta(hours=5))


def gpu(*culprits: str, **changes: Any) -> Verdict:
    """A GPU that fell off the bus on `culprits`."""
    return a_verdict(
        category=Category.HARDWARE_GPU,
        cause="gpu_fallen_off_bus",
        culprits=culprits,
        suggested=Action.RESTART_EXCLUDE,
        **changes,
    )


def a_verdict(**changes: Any) -> Verdict:
    standard: dict[str, Any] = {
        "symptom": SymptomKind.CRASH,
        "category": Category.UNKNOWN,
        "cause": "unknown",
        "confidence": Confidence.ESTABLISHED,
        "summary": "what happened",
    }
    return Verdict(**(standard | changes))


def bug(**changes: Any) -> Verdict:
    """An error of the user's own program."""
    standard: dict[str, Any] = {
        "category": Category.USER_CODE,
        "cause": "key_error",
        "suggested": Action.STOP,
        "fingerprint": "KeyError@train.py:7",
    }
    return a_verdict(**(standard | changes))


def preempted() -> Verdict:
    return a_verdict(category=Category.SCHEDULER, cause="preemption")


def past(attempt: int, verdict: Verdict, *, checkpoint: int | None = None) -> PastAttempt:
    """An earlier attempt that failed with `verdict` and was restarted, like all before it."""
    return PastAttempt(
        attempt=attempt,
        category=verdict.category,
        cause=verdict.cause,
        fingerprint=verdict.fingerprint,
        action=Action.RESTART,
        checkpoint=checkpoint,
        restarts_before=attempt,
    )


def pasts(verdict: Verdict, count: int, *, checkpoint: int | None = None) -> tuple[PastAttempt, ...]:
    """`count` earlier attempts that all failed alike, with the same last checkpoint."""
    return tuple(past(attempt, verdict, checkpoint=checkpoint) for attempt in range(count))


def an_exclusion(node: str, *, hours: float | None = 5) -> Exclusion:
    until = None if hours is None else NOW + timedelta(hours=hours)
    return Exclusion(node=node, by="policy", reason="earlier", since=NOW - timedelta(hours=1), until=until)


def a_situation(
    verdict: Verdict,
    *,
    state: str = "FAILED",
    checkpoint: int | None = None,
    history: tuple[PastAttempt, ...] = (),
    nodes: int = 4,
    optin: OptIn | None = None,
    ran_on: tuple[str, ...] = (),
    **changes: Any,
) -> Situation:
    """Attempt ``len(history)`` of a job of four nodes that ended in `state`."""
    ending = {key: changes.pop(key) for key in list(changes) if key in Ending.model_fields}
    return Situation(
        job=JOB,
        attempt=len(history),
        now=NOW,
        optin=optin or OptIn(),
        ending=Ending(state=state, node_count=nodes, **ending),
        verdict=verdict,
        progress=Progress(checkpoint=checkpoint),
        nodes=ran_on,
        past=history,
        **changes,
    )
