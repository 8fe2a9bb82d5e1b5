"""How many iterations finished after a line, told per source: files of one attempt are read one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from recovery.attribution.reading import CLOCKS_AGREE_WITHIN, Reading


class FinishedIterations:
    """The iterations of an attempt, for questions in logarithmic time."""

    def __init__(self, iterations: Iterable[Reading]) -> None:
        """Index `iterations`, which come in order of appearance."""
        self._orders: dict[str, list[int]] = defaultdict(list)
        self._orders_at: dict[tuple[str, datetime], list[int]] = defaultdict(list)
        times: dict[str, list[datetime]] = defaultdict(list)
        for reading in iterations:
            source = reading.line.source
            self._orders[source].append(reading.order)
            if reading.at is not None:
                self._orders_at[source, reading.at].append(reading.order)
                times[source].append(reading.at)
        self._times = {source: sorted(of_source) for source, of_source in times.items()}
        self._all_times = sorted(at for of_source in times.values() for at in of_source)

    def after(self, reading: Reading) -> int:
        """Count those that came later, as `Reading.is_before` tells it."""
        source = reading.line.source
        own = _behind(reading.order, self._orders.get(source, ()))
        if reading.at is None:
            return own
        own -= _behind(reading.order, self._orders_at.get((source, reading.at), ()))
        since = reading.at + CLOCKS_AGREE_WITHIN
        return own + _behind_time(since, self._all_times) - _behind_time(since, self._times.get(source, ()))


def _behind(order: int, orders: Sequence[int]) -> int:
    return len(orders) - bisect_right(orders, order)


def _behind_time(at: datetime, times: Sequence[datetime]) -> int:
    return len(times) - bisect_right(times, at)
