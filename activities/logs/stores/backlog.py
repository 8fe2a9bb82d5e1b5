"""How far back a store's lines may still be on their way.

While collectors do not reach a store they keep lines back, and deliver them later with the times at which they were
printed. Where nothing newer than some line is known of any job, everything since then may still come; and after such a
gap it is asked for again for `CATCH_UP_S`.
"""

from __future__ import annotations

from activities.logs.stores.protocol import Nanoseconds

CATCH_UP_S = 60.0
"""How long collectors may take to deliver what they kept back."""
MOST_BACK_S = 3_600.0
_SECOND_NS = 1_000_000_000


class Backlog:
    """What is known of the gaps in one store's lines."""

    def __init__(self, late_s: float) -> None:
        """`late_s`: how much later than its time a line arrives at most, where nothing is kept back."""
        self._late_ns = int(late_s * _SECOND_NS)
        self._newest_ns: Nanoseconds | None = None
        self._heard_ns = 0
        self._gap_ns = 0
        self._until_ns = 0

    def hear(self, newest_ns: Nanoseconds, now_ns: Nanoseconds) -> None:
        """Note that the newest line of all is of `newest_ns`, as was learned at `now_ns`."""
        if self._newest_ns is not None and now_ns - self._heard_ns > self._late_ns:
            still_open = now_ns < self._until_ns
            self._gap_ns = min(self._gap_ns, self._newest_ns) if still_open else self._newest_ns
            self._until_ns = now_ns + int(CATCH_UP_S * _SECOND_NS)
        self._newest_ns, self._heard_ns = newest_ns, now_ns

    def give_up(self) -> None:
        """Note that the newest gap holds more lines than can be asked for time and again."""
        self._until_ns = 0

    def known_ns(self, now_ns: Nanoseconds) -> Nanoseconds:
        """Return before which time all lines have arrived or never will, where the store gave everything up to now."""
        newest_ns = now_ns if self._newest_ns is None else min(now_ns, self._newest_ns)
        known_ns = min(newest_ns, self._gap_ns) if now_ns < self._until_ns else newest_ns
        return max(known_ns - self._late_ns, now_ns - int(MOST_BACK_S * _SECOND_NS))
