"""What should have come of the four jobs, and whether it did."""

from __future__ import annotations

from collections.abc import Callable

from activities.scheduler.protocol import JobRecord, JobState
from recovery.model import MilestoneKind, SymptomKind, Value
from workers.simulator.scenario import BAD_NODE, GPU_FAULT, HANG, HEALTHY, KEY_ERROR
from workflows.state import RecoveryState


class JobView(Value):
    """One job of the demonstration as the cluster and its workflow show it."""

    name: str
    record: JobRecord
    state: RecoveryState
    iteration: int | None = None
    """The newest iteration that its log shows."""


class Check(Value):
    """One expectation."""

    job: str
    expected: str
    met: bool


class DemoReport(Value):
    """What the demonstration came to."""

    checks: tuple[Check, ...]
    jobs: tuple[JobView, ...]
    elapsed_s: float
    ui_url: str

    @property
    def passed(self) -> bool:
        """Whether every expectation was met."""
        return bool(self.checks) and all(check.met for check in self.checks)


Expectation = tuple[str, Callable[[JobView], bool]]


def _completed_after_one_restart(view: JobView) -> bool:
    return view.record.state is JobState.COMPLETED and view.record.restart_count == 1


def _resumed_from_checkpoint(view: JobView) -> bool:
    kept = [past.checkpoint for past in view.state.past if past.checkpoint is not None]
    progress = view.state.progress
    first, loaded = progress.first_iteration, progress.resumed_from
    return bool(kept) and loaded == max(kept) and first is not None and first > max(kept)


def _avoided_bad_node(view: JobView) -> bool:
    return BAD_NODE in view.record.excluded_nodes and BAD_NODE not in view.record.nodes


EXPECTATIONS: dict[str, tuple[Expectation, ...]] = {
    GPU_FAULT: (
        ("requeued once and completed", _completed_after_one_restart),
        (f"kept off {BAD_NODE}", _avoided_bad_node),
        ("resumed from its last checkpoint", _resumed_from_checkpoint),
    ),
    HANG: (
        ("seen as a hang", lambda view: any(_is_hang(view))),
        ("killed, requeued once and completed", _completed_after_one_restart),
        ("resumed from its last checkpoint", _resumed_from_checkpoint),
    ),
    KEY_ERROR: (
        ("tried once more, then stopped", lambda view: view.record.restart_count == 1 and _stopped(view)),
        ("left as failed", lambda view: view.record.state is JobState.FAILED),
    ),
    HEALTHY: (
        ("completed", lambda view: view.record.state is JobState.COMPLETED),
        ("never touched", lambda view: view.record.restart_count == 0 and not view.record.admin_comment),
    ),
}


def _is_hang(view: JobView) -> list[bool]:
    verdict, symptom = view.state.verdict, view.state.symptom
    return [
        symptom is not None and symptom.kind is SymptomKind.HANG,
        verdict is not None and verdict.symptom is SymptomKind.HANG,
    ]


def _stopped(view: JobView) -> bool:
    return view.state.closed.startswith("stopped")


def check(views: tuple[JobView, ...]) -> tuple[Check, ...]:
    """Hold every job against its expectations."""
    return tuple(
        Check(job=view.name, expected=text, met=holds(view))
        for view in views
        for text, holds in EXPECTATIONS[view.name]
    )


def milestone_lines(view: JobView) -> list[str]:
    """Return the job's milestones as seconds since its adoption, a line for each attempt."""
    milestones = [m for m in view.state.milestones if m.kind is not MilestoneKind.ADOPTED]
    start = view.state.milestones[0].at
    attempts = sorted({m.attempt for m in milestones})
    return [
        f"attempt {attempt}  "
        + "  ".join(
            f"{m.kind.value} +{(m.at - start).total_seconds():.1f}s" for m in milestones if m.attempt == attempt
        )
        for attempt in attempts
    ]
