"""A source that can't be seen: since when, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from pydantic import Field

from recovery.model import Value
from recovery.redaction import redact

_MAX_REASON_CHARS = 300


class Blindness(Value):
    """One source that can't be seen."""

    source: str = Field(max_length=64)
    since: datetime
    reason: str = Field(max_length=_MAX_REASON_CHARS)

    @property
    def says(self) -> str:
        """What is so, in words."""
        return f"{self.source} blind since {self.since:%Y-%m-%d %H:%M:%S} UTC: {self.reason}"


class Sighted(Protocol):
    """What knows whether its sources can be seen."""

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """Those of its sources that can't be seen."""
        ...


def blind(source: str, since: datetime, reason: str) -> Blindness:
    """Return that `source` can't be seen, for whatever `reason` the outside world gives."""
    return Blindness(source=source, since=since, reason=redact(reason)[:_MAX_REASON_CHARS])


def moment(ns: int) -> datetime:
    """Return a time in nanoseconds since the epoch as one with a zone."""
    return datetime.fromtimestamp(ns / 1e9, UTC)
