"""What a store of metrics gives, whichever it is: samples in one spelling, or why there are none.

A source never raises into an activity: without metrics a verdict is made from lines and from what Slurm says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from activities.blindness import Blindness
from recovery.attribution.incident import MetricSample
from recovery.model import NodeName, Value


class MetricsState(StrEnum):
    """What the samples are worth."""

    NONE = "none"
    """No store is configured."""
    FRESH = "fresh"
    STALE = "stale"
    """The store answers, and its newest sample is too old to say anything."""
    UNREADABLE = "unreadable"
    """No usable answer."""


class MetricsAnswer(Value):
    """What a source knows of some nodes over a stretch of time."""

    state: MetricsState
    reason: str = ""
    """Why samples are missing, with the source's name and a remedy; empty where none are."""
    samples: tuple[MetricSample, ...] = ()
    """By series, oldest first, in the names and labels that `recovery.attribution.gauges` reads."""


class MetricSource(Protocol):
    """One store of metrics."""

    @property
    def window(self) -> timedelta:
        """How long before an attempt's end is worth a look."""
        ...

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """Since when the store tells nothing new, and why; empty while it does, and where there is none."""
        ...

    async def samples(self, nodes: Sequence[NodeName], since: datetime, until: datetime) -> MetricsAnswer:
        """Return what is known of `nodes` from `since` to `until`, within a few seconds. Raises nothing."""
        ...


class NoMetrics:
    """Stands where no store is configured."""

    window = timedelta(0)
    blindnesses: tuple[Blindness, ...] = ()

    async def samples(self, nodes: Sequence[NodeName], since: datetime, until: datetime) -> MetricsAnswer:  # noqa: ARG002
        """Return that there are none."""
        return MetricsAnswer(state=MetricsState.NONE)
