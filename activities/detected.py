"""What the monitor detects in a running attempt, as the watch reports it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from activities.findings import Faulted, FaultSurvived, Finding, Slowed, Stalled
from activities.scheduler.protocol import JobRecord
from recovery.detection import findings as detection
from recovery.model import Evidence


def as_reported(
    found: detection.Detection | detection.Straggler,
    record: JobRecord,
    report: Callable[[tuple[Evidence, ...]], dict[str, Any]],
) -> Finding:
    """Return `found` of the job in `record`; `report` gives what every report carries, with that evidence."""
    match found:
        case detection.FatalLine():
            return Faulted(**report((found.line,)), record=record, happened_at=found.at, certain=False)
        case detection.FaultConfirmed():
            evidence = (found.line, *found.later)
            return Faulted(**report(evidence), record=record, happened_at=found.at, certain=True)
        case detection.FaultSurvived():
            return FaultSurvived(**report((found.line,)))
        case detection.Stall():
            silent_s = (datetime.now(UTC) - found.since).total_seconds()
            summary = f"no progress for {silent_s:.0f} s in phase {found.phase}, deadline {found.deadline_s:.0f} s"
            return Stalled(**report(found.evidence), record=record, summary=summary)
        case detection.Straggler():
            slower = found.now_s / found.usual_s - 1
            summary = f"{slower:.0%} slower: {found.now_s:.3g} s an iteration, before {found.usual_s:.3g} s"
            return Slowed(**report(found.evidence), record=record, happened_at=found.since, summary=summary)
