"""A fatal line and what follows it: the fault is confirmed by silence, or survived by going on."""

from __future__ import annotations

from datetime import datetime, timedelta

import re2

from recovery.detection.pace import Pace
from recovery.detection.progress import MAX_LINE_CHARS
from recovery.detection.settings import DetectionSettings
from recovery.model import Evidence, Value

MAX_LATER_LINES = 2
_MARKERS_OF_LIFE = 2

_LAUNCHER_ENDS_WORKERS = re2.compile(
    rb"Sending process [0-9]+ closing signal|Job step aborted: Waiting up to [0-9]+ seconds|Worker group FAILED"
)


class FaultEpisode(Value):
    """One fatal line, until it is confirmed or survived."""

    at: datetime
    line: Evidence
    later: tuple[Evidence, ...] = ()
    markers_after: int = 0
    """Completed markers since the line."""
    last_marker_at: datetime | None = None
    not_before: datetime | None = None
    """The launcher acts on its workers: judge no earlier."""
    announced: bool = False
    """The line itself was reported and taken, or is not to be."""
    confirmed: bool = False
    """The confirmation was reported and taken."""

    def with_line(self, line: Evidence) -> FaultEpisode:
        """Return the episode with a further fatal line."""
        if len(self.later) >= MAX_LATER_LINES or line.text == self.line.text:
            return self
        return self.model_copy(update={"later": (*self.later, line)})

    def with_marker(self, at: datetime) -> FaultEpisode:
        """Return the episode after a completed marker."""
        return self.model_copy(update={"markers_after": self.markers_after + 1, "last_marker_at": at})

    def waiting(self, at: datetime, seconds: float) -> FaultEpisode:
        """Return the episode, not to be judged for `seconds` from `at` on."""
        until = at + timedelta(seconds=seconds)
        return self.model_copy(update={"not_before": max(until, self.not_before or until)})

    def is_survived(self, grace_s: float) -> bool:
        """Whether training went on for longer than the grace: lines still in a buffer don't reach that far."""
        if self.last_marker_at is None or self.markers_after < _MARKERS_OF_LIFE:
            return False
        return (self.last_marker_at - self.at).total_seconds() >= grace_s

    def is_confirmed(self, now: datetime, grace_s: float) -> bool:
        """Whether nothing was finished for the grace, since the line or the last marker after it."""
        if self.not_before is not None and now < self.not_before:
            return False
        return (now - (self.last_marker_at or self.at)).total_seconds() >= grace_s


def launcher_ends_workers(line: str) -> bool:
    """Whether a launcher says in `line` that it takes its workers down: the job will soon end, or start them again."""
    return _LAUNCHER_ENDS_WORKERS.search(line[:MAX_LINE_CHARS].encode("utf-8", "replace")) is not None


def grace_s(settings: DetectionSettings, pace: Pace, *, learned: bool) -> float:
    """Return how long after a fatal line nothing may be finished.

    Three usual intervals, cut to the cap; but never less than the next marker's due time: until then its absence says
    nothing.
    """
    if not learned:
        return settings.startup_fault_grace_s
    intervals = min(3 * pace.usual_s, settings.fault_grace_cap_s)
    return max(settings.fault_grace_s, intervals, 1.2 * pace.usual_s)
