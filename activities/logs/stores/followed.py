"""The newest lines of one job in a store, each once, for whoever reads them on.

A reader's position says how many of the job's lines had arrived when its last one did. A reader that comes from
elsewhere (another process, an earlier time) goes by the lines' times and by the marks of what it had.
"""

from __future__ import annotations

import heapq
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from activities.logs.protocol import MAX_MARKS, LineMark, LogLine, StorePosition
from activities.logs.stores.protocol import Entry, Nanoseconds
from recovery.signatures.lines import MAX_LINE_BYTES, clean

KEEP_S = 30.0
"""How long lines stay that were delivered: a worker's successor reads on from a heartbeat that is some seconds old."""
MAX_WAITING_BYTES = 8 << 20
"""Of lines that nobody has read yet; the store is not asked for more until they are."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENTRY_BYTES = 200
"""What an entry weighs beside its text, roughly."""


class _Arrived(NamedTuple):
    number: int
    at_s: float
    digest: str
    entry: Entry


class Taken(NamedTuple):
    """What a reader gets."""

    entries: list[Entry]
    position: StorePosition
    more: bool
    """There is more here than was asked for."""


class FollowedJob:
    """What has arrived of one job since somebody began to follow it."""

    def __init__(self, position: StorePosition) -> None:
        self.next_ns = position.since_ns
        """Lines before this are known; questions begin here."""
        self.looked_s: float | None = None
        """When, by the loop's clock, the store last answered for this job."""
        self.complete = False
        """Whether that answer reached the newest lines."""
        self.read_s = 0.0
        """When somebody last read."""
        self.lost = 0
        """How many lines are known to be lost: they came later than any is waited for, or too many at one moment."""
        self._first_ns = position.since_ns
        self._reader = uuid.uuid4().hex[:12]
        self._count = 0
        self._first_kept = 0
        self._delivered = 0
        self._known: dict[str, Nanoseconds] = {mark.digest: mark.ns for mark in position.marks}
        self._from_ns = position.since_ns
        self._arrived: deque[_Arrived] = deque()
        self._waiting_bytes = 0

    @property
    def full(self) -> bool:
        """Whether to wait for the readers before more is asked for."""
        return self._waiting_bytes > MAX_WAITING_BYTES

    def can_serve(self, position: StorePosition) -> bool:
        """Whether all lines after `position` are here or still to come."""
        if position.reader == self._reader:
            return self._first_kept <= position.arrival <= self._count
        return position.since_ns >= self._from_ns

    def accept(self, entries: Iterable[Entry], now_s: float, *, pushed: bool = False) -> None:
        """Take entries that arrived at `now_s` of the loop's clock; those that are known already are passed over. What
        is asked for comes again and again; what is `pushed` comes once, and is lost where it is too late."""
        for entry in entries:
            if entry.ns < self.next_ns:
                self.lost += pushed and entry.ns >= self._first_ns
                continue
            if (digest := entry.digest) in self._known:
                continue
            self._known[digest] = entry.ns
            self._count += 1
            self._arrived.append(_Arrived(self._count, now_s, digest, entry))
            self._waiting_bytes += len(entry.text) + _ENTRY_BYTES

    def known_to(self, ns: Nanoseconds) -> None:
        """Note that everything before `ns` has arrived or never will."""
        if ns > self.next_ns:
            self.next_ns = ns
            self._known = {digest: at for digest, at in self._known.items() if at >= ns}

    def take(self, position: StorePosition, limit_bytes: int, now_s: float) -> Taken:
        """Return the lines after `position`, in order of time as far as they arrived together."""
        self.read_s = now_s
        if position.reader == self._reader:
            new, more = _at_most(limit_bytes, self._arrived_after(position.arrival))
        else:
            new, more = self._unknown_to(position), False
        arrival = new[-1].number if more else self._count
        self._deliver(arrival)
        self._forget(now_s)
        known_here = position.lost_there if position.reader == self._reader else 0
        if not new and (position.reader, position.arrival, known_here) == (self._reader, arrival, self.lost):
            return Taken([], position, more=False)
        wanted = [line for line in new if _is_of_attempt(line.entry, position)]
        marks, since_ns = _marks_after(position, wanted)
        place = {"marks": marks, "since_ns": since_ns, "reader": self._reader, "arrival": arrival}
        place |= {"lost": position.lost + self.lost - known_here, "lost_there": self.lost}
        entries = sorted((line.entry for line in wanted), key=lambda entry: entry.ns)
        return Taken(entries, position.model_copy(update=place), more)

    def _arrived_after(self, number: int) -> list[_Arrived]:
        after: list[_Arrived] = []
        for line in reversed(self._arrived):
            if line.number <= number:
                break
            after.append(line)
        return after[::-1]

    def _unknown_to(self, position: StorePosition) -> list[_Arrived]:
        had = {mark.digest for mark in position.marks}
        return [line for line in self._arrived if line.entry.ns >= position.since_ns and line.digest not in had]

    def _deliver(self, number: int) -> None:
        for line in self._arrived_after(self._delivered):
            if line.number <= number:
                self._waiting_bytes -= len(line.entry.text) + _ENTRY_BYTES
        self._delivered = max(self._delivered, number)

    def _forget(self, now_s: float) -> None:
        while self._arrived and self._arrived[0].number <= self._delivered and now_s - self._arrived[0].at_s > KEEP_S:
            gone = self._arrived.popleft()
            self._first_kept = gone.number
            self._from_ns = max(self._from_ns, gone.entry.ns + 1)


def lines_of(entries: Iterable[Entry]) -> list[LogLine]:
    """Return the lines of `entries`: a collector may have put several into one."""
    lines: list[LogLine] = []
    for entry in entries:
        at = _EPOCH + timedelta(microseconds=entry.ns // 1_000)
        for piece in entry.text.replace("\r", "\n").split("\n"):
            text = clean(piece.encode("utf-8", "replace")[:MAX_LINE_BYTES].decode("utf-8", "ignore"))
            if text:
                lines.append(
                    LogLine(None, text, at=at, host=entry.host, rank=entry.rank, stream=entry.stream, file=entry.file)
                )
    return lines


def _at_most(limit_bytes: int, lines: list[_Arrived]) -> tuple[list[_Arrived], bool]:
    size = 0
    for index, line in enumerate(lines):
        size += len(line.entry.text)
        if size > limit_bytes and index:
            return lines[:index], True
    return lines, False


def _is_of_attempt(entry: Entry, position: StorePosition) -> bool:
    return entry.ns >= position.begin_ns and (position.until_ns is None or entry.ns < position.until_ns)


def _marks_after(position: StorePosition, new: Sequence[_Arrived]) -> tuple[tuple[LineMark, ...], Nanoseconds]:
    """The marks of the newest lines delivered, and the time from which on they are all."""
    if not new:
        return position.marks, position.since_ns
    delivered = [*position.marks, *(LineMark(line.entry.ns, line.digest) for line in new)]
    if len(delivered) <= MAX_MARKS:
        return tuple(delivered), position.since_ns
    newest = heapq.nlargest(MAX_MARKS + 1, delivered)
    # Of lines of one and the same nanosecond either all are marked or none is.
    since_ns = newest[-1].ns + 1
    return tuple(sorted(mark for mark in newest if mark.ns >= since_ns)), since_ns
