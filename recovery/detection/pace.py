"""How long a job usually takes from one completed marker to the next, learned per phase from the job itself."""

from __future__ import annotations

import math

from recovery.model import Value

KEPT_INTERVALS = 16
_SHORTEST_S = 0.05
"""Markers that arrive closer together came with one read of the log: their distance says nothing."""


class Pace(Value):
    """The intervals of one phase of one attempt, in seconds."""

    recent: tuple[float, ...] = ()
    """The last few, oldest first."""
    longest: float = 0.0

    def with_interval(self, seconds: float) -> Pace:
        """Return the pace after one more interval."""
        if seconds < _SHORTEST_S:
            return self
        seconds = round(seconds, 2)
        return Pace(recent=(*self.recent, seconds)[-KEPT_INTERVALS:], longest=max(self.longest, seconds))

    @property
    def usual_s(self) -> float:
        """The 90th percentile of the recent intervals; 0 while none is known."""
        if not self.recent:
            return 0.0
        ordered = sorted(self.recent)
        return ordered[math.ceil(0.9 * len(ordered)) - 1]
