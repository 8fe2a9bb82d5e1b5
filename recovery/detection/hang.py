"""When a lack of progress is a hang: a deadline per phase, learned from the job's own intervals.

A deadline always counts from the last completed marker. A line that something *begins* (a checkpoint, an evaluation)
changes which deadline applies, never where it starts: a log can't talk itself out of a hang.
"""

from __future__ import annotations

from collections.abc import Mapping

import re2

from recovery.detection.markers import Phase
from recovery.detection.pace import Pace
from recovery.detection.progress import MAX_LINE_CHARS
from recovery.detection.settings import DetectionSettings

_COMMUNICATION_TIMED_OUT = re2.compile(
    rb"Watchdog caught collective operation timeout"
    rb"|Timeout at NCCL work: "
    rb"|\(either an error or timeout\) detected by watchdog"
    rb"|failure detected by watchdog at work sequence id"
    rb"|watchdog got stuck for [0-9]+ seconds"
    rb"|Timed out waiting [0-9]+ms for (?:recv|send) operation to complete"
)
"""Texts of PyTorch's ProcessGroupNCCL (1.12 to 2.9) and of Gloo."""


def reports_communication_hang(line: str) -> bool:
    """Whether the program itself says in `line` that a collective did not finish in time."""
    return _COMMUNICATION_TIMED_OUT.search(line[:MAX_LINE_CHARS].encode("utf-8", "replace")) is not None


def deadline_s(
    settings: DetectionSettings, paces: Mapping[Phase, Pace], phase: Phase, *, communication_hang: bool
) -> float:
    """Return how long an attempt in `phase` may go without a completed marker."""
    pace = paces.get(phase, Pace())
    if settings.hang_after_s is not None:
        deadline = settings.hang_after_s
    else:
        start_up = paces.get(Phase.START_UP, Pace())
        slowest = pace.longest if is_learned(pace, phase) else max(pace.longest, start_up.longest)
        floor = settings.floor_s(phase) if is_learned(pace, phase) else settings.unlearned_floor_s
        deadline = max(floor, settings.hang_factor * pace.usual_s, settings.longest_factor * slowest)
    if communication_hang:
        deadline = min(deadline, max(settings.communication_hang_floor_s, settings.hang_factor * pace.usual_s))
    return deadline


def is_learned(pace: Pace, phase: Phase) -> bool:
    """Whether enough intervals of `phase` are known to judge by them."""
    return len(pace.recent) >= (3 if phase is Phase.TRAIN else 1)
