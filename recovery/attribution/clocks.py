"""When a line happened: by its collector's stamp, or by its own where the collector was late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.attribution.incident import LogLine
from recovery.signatures.lines import LinePrefix
from recovery.signatures.stamps import with_year

_LATE = timedelta(seconds=90)
_ZONE_STEP_S = 900
_ZONE_TOLERANCE_S = 60
_SAMPLES = 2_000


@dataclass(frozen=True)
class Clock:
    """Relates the stamps inside lines, which may be in another zone, to the collector's."""

    near: datetime | None
    """Any time of the incident: tells the year where a stamp has none."""
    zone: timedelta
    """Collector's stamps minus the lines' own, as they usually are: a difference of time zones."""

    @classmethod
    def learn(cls, lines: Sequence[tuple[LogLine, LinePrefix]], now: datetime | None) -> Clock:
        """Learn the usual difference from the lines that have both stamps."""
        near = next((line.at for line, _ in lines if line.at), now)
        zones: Counter[float] = Counter()
        for line, prefix in lines[:_SAMPLES]:
            own = with_year(prefix.at, near) if prefix.at and line.at else None
            if own and line.at:
                lag_s = (line.at - own).total_seconds()
                zone_s = round(lag_s / _ZONE_STEP_S) * _ZONE_STEP_S
                if abs(lag_s - zone_s) < _ZONE_TOLERANCE_S:
                    zones[zone_s] += 1
        return cls(near, timedelta(seconds=zones.most_common(1)[0][0]) if zones else timedelta())

    def time_of(self, line: LogLine, prefix: LinePrefix) -> tuple[datetime | None, bool]:
        """Return when the line happened, and whether its collector stamped it much later than that."""
        own = with_year(prefix.at, self.near) if prefix.at else None
        if line.at is None or own is None:
            return line.at or own, False
        happened = own + self.zone
        if line.at - happened > _LATE and line.stream == "syslog":
            return happened, True
        return line.at, False
