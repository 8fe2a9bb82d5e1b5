"""Where one attempt of a job ends in its log and the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import re2

from recovery.attribution.reading import Reading
from recovery.detection.markers import IterationFinished
from recovery.signatures.catalogue import Role

_REQUEUED = re2.compile(r"Requeuing JobId=\d+|[Rr]equeue job JobId=\d+")
_LAST_WORDS = timedelta(seconds=5)
"""How long after Slurm's word an attempt's own lines may still arrive; no further attempt begins and fails so soon."""
_ALLOCATED = re2.compile(r"sched: Allocate JobId=|sched/backfill: .*Started JobId=")


def split_attempts(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Cut where Slurm requeued or allocated again, where an agent restarted its workers, and where iterations go on
    after processes had ended or the iteration number jumped back after a failure. Sources that stand one after the
    other may tell of the same moments: between them only stamps say what came later. The last piece that says anything
    is the last attempt."""
    attempts: list[list[Reading]] = [[]]
    state = _State()
    for reading in readings:
        if attempts[-1] and state.begins_anew(reading):
            attempts.append([])
            state = _State()
        attempts[-1].append(reading)
        state.take(reading)
        if state.failed.by_source and _ends_attempt(reading):
            attempts.append([])
            state = _State()
    return _merge_remains(attempts)


@dataclass
class _Firsts:
    """The first lines of a kind: of each source, and by their stamps."""

    by_source: dict[str, Reading] = field(default_factory=dict)
    by_stamp: Reading | None = None

    def take(self, reading: Reading) -> None:
        self.by_source.setdefault(reading.line.source, reading)
        earliest = self.by_stamp
        if reading.at and (earliest is None or earliest.at is None or reading.at < earliest.at):
            self.by_stamp = reading

    def any_before(self, reading: Reading) -> bool:
        """Whether one of them came earlier than `reading`."""
        own = self.by_source.get(reading.line.source)
        return (own is not None and own.is_before(reading)) or self._elsewhere_before(reading)

    def any_behind(self, reading: Reading) -> bool:
        """Whether one of them stands further up in the source of `reading`, or came earlier in another."""
        return reading.line.source in self.by_source or self._elsewhere_before(reading)

    def _elsewhere_before(self, reading: Reading) -> bool:
        first = self.by_stamp
        return first is not None and first.line.source != reading.line.source and first.is_before(reading)


@dataclass
class _State:
    """What has been seen of an attempt."""

    highest: dict[str, int] = field(default_factory=dict)
    """The highest iteration of each source."""
    failed: _Firsts = field(default_factory=_Firsts)
    ended: _Firsts = field(default_factory=_Firsts)
    """The first lines that say that a process ended."""

    def take(self, reading: Reading) -> None:
        """Note what a line adds."""
        if (iteration := _iteration(reading)) >= 0:
            self.highest[reading.line.source] = max(iteration, self.highest.get(reading.line.source, -1))
        if _fails(reading):
            self.failed.take(reading)
        if reading.cause == "process_exited":
            self.ended.take(reading)

    def begins_anew(self, reading: Reading) -> bool:
        """Whether a line can only be of a further attempt."""
        if "JobId=" in reading.text and _ALLOCATED.search(reading.text):
            return True
        if not isinstance(reading.marker, IterationFinished):
            return False
        jumped_back = 0 <= _iteration(reading) <= self.highest.get(reading.line.source, -1)
        return self.ended.any_before(reading) or (jumped_back and self.failed.any_behind(reading))


def _iteration(reading: Reading) -> int:
    marker = reading.marker
    return marker.n if isinstance(marker, IterationFinished) and marker.n is not None else -1


def _fails(reading: Reading) -> bool:
    return reading.is_a(Role.ROOT) or reading.is_a(Role.CASCADE)


def _ends_attempt(reading: Reading) -> bool:
    return reading.cause == "self_recovered" or ("JobId=" in reading.text and bool(_REQUEUED.search(reading.text)))


def _merge_remains(attempts: list[list[Reading]]) -> list[list[Reading]]:
    """A last piece that shows no beginning of its own is what remained to be said of the attempt before."""
    first = len(attempts) - 1
    said = _Said.by(attempts[first])
    while first > 0 and said.remained(attempts[first - 1][-1]):
        first -= 1
        said = said.after(_Said.by(attempts[first]))
    return [*attempts[:first], [reading for piece in attempts[first:] for reading in piece]]


class _Said(NamedTuple):
    """What a piece of a log says, in short."""

    progress: bool
    failure: bool
    root: bool
    last_at: datetime | None

    @classmethod
    def by(cls, piece: Sequence[Reading]) -> _Said:
        return cls(
            progress=any(r.marker is not None for r in piece),
            failure=any(map(_fails, piece)),
            root=any(r.is_a(Role.ROOT) for r in piece),
            last_at=max((r.at for r in piece if r.at), default=None),
        )

    def after(self, before: _Said) -> _Said:
        return _Said(
            self.progress or before.progress,
            self.failure or before.failure,
            self.root or before.root,
            max(filter(None, (self.last_at, before.last_at)), default=None),
        )

    def remained(self, boundary: Reading) -> bool:
        """Whether it belongs to the attempt that ended with the line `boundary`."""
        if self.progress:
            return False
        if not self.failure:
            return True
        if boundary.at is not None and self.last_at is not None:
            return self.last_at - boundary.at <= _LAST_WORDS
        return not self.root
