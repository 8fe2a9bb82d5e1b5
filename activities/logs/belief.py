"""Which of several sources of the same lines is believed.

A job's output file and a log store hold the same lines, so that counting both would count each twice, and comparing
texts does not help: collectors cut, wrap and stamp them. One family of sources is believed at a time: the first that
the operator names, for as long as it can be read. The others are read along. When the believed one has been out of
sight for `GIVE_UP_S`, the next one that can be read takes over with what it has said since then, and stays: going back
and forth would tell lines twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, TypeVar

GIVE_UP_S = 10.0
_MOST_HELD = 5_000
"""Lines kept of a source that is not believed."""

Line = TypeVar("Line")


class Belief(Generic[Line]):
    """Chooses between families of sources, one reading after the other."""

    def __init__(self) -> None:
        self.family = ""
        """The believed one; empty before the first reading."""
        self._seen_at: datetime | None = None
        self._held: dict[str, deque[tuple[datetime, Line]]] = {}

    def take(
        self, lines: Mapping[str, Sequence[Line]], fresh: frozenset[str], order: Sequence[str], now: datetime
    ) -> list[Line]:
        """Return what counts of the `lines` that were read `now`, by family. `fresh` are the families of which all
        could be read; `order` is the operator's."""
        if self.family not in order:
            self.family = order[0] if order else ""
            self._seen_at = now
        believed = list(lines.get(self.family, ()))
        self._hold(lines, now)
        if self.family in fresh:
            self._seen_at = now
            return believed
        other = next((family for family in order if family in fresh and family != self.family), None)
        since = self._seen_at or now
        if other is None or now - since < timedelta(seconds=GIVE_UP_S):
            return believed
        self.family, self._seen_at = other, now
        return believed + [line for at, line in self._held.pop(other, ()) if at > since]

    def _hold(self, lines: Mapping[str, Sequence[Line]], now: datetime) -> None:
        for family, heard in lines.items():
            if family == self.family:
                continue
            held = self._held.setdefault(family, deque(maxlen=_MOST_HELD))
            held.extend((now, line) for line in heard)
            while held and now - held[0][0] > timedelta(seconds=3 * GIVE_UP_S):
                held.popleft()
