"""What every source of a job's log lines offers: follow it from a cursor, and read a stretch of it again for evidence.

A source never raises for what a job, a user or a file system did: what can't be read is a state, and "blind" is not
"silent". Lines come in the order in which the source has them; nothing is promised across sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from pydantic import Field

from activities.blindness import Blindness
from activities.scheduler.protocol import JobRecord
from recovery.model import Value

MAX_MARKS = 32
"""How many of a store's newest delivered lines a cursor knows again."""


def nanoseconds(at: datetime) -> int:
    """Return `at`, which has a zone, in nanoseconds since the epoch."""
    return round(at.timestamp() * 1_000_000) * 1_000


class SourceState(StrEnum):
    """What a read says about its source."""

    FRESH = "fresh"
    """It was read just now. Whether it grew is another matter: a log that stands still is what a hang looks like."""
    MISSING = "missing"
    """It is not there (yet, or any more)."""
    UNREADABLE = "unreadable"
    """It can't be read: permissions, a directory, a pipe, a file system or a store that does not answer."""
    STALE = "stale"
    """A store that answers, and has had no new line of any job for long: its silence says nothing of one job."""


class LogLine(NamedTuple):
    """One line of a log, clean: decoded, without terminal codes, bounded in length."""

    number: int | None
    """Counted from 1 by newlines, as editors do; the redraws of a progress bar share one. None where unknown."""
    text: str
    complete: bool = True
    """False for the unfinished last line of a file that has been quiet; it comes again once it is finished."""
    at: datetime | None = None
    """When it was printed, where a store says so."""
    host: str = ""
    """The node that printed it, where a store's labels or the name of a file say so."""
    rank: int | None = None
    """The global rank, where a store's labels say so."""
    stream: str = ""
    """``stdout`` or ``stderr``, where a store's labels say so."""
    file: str = ""
    """The file that a store's collector read it from, where its labels say so."""


class LineMark(NamedTuple):
    """Knows one line of a store again."""

    ns: int
    """Its time in nanoseconds since the epoch."""
    digest: str


class StorePosition(Value):
    """Where the reading of one job's lines in a store stands. A store's lines have a time and no number, and may arrive
    out of order."""

    begin_ns: int = Field(ge=0)
    """Lines before this are another attempt's. Nanoseconds since the epoch, as everything here."""
    until_ns: int | None = None
    """Lines from here on are the next attempt's; None: it has not begun."""
    since_ns: int = Field(ge=0)
    """Lines before this were delivered: a reader that starts anew begins here."""
    marks: tuple[LineMark, ...] = Field(default=(), max_length=MAX_MARKS)
    """The lines from `since_ns` on that were delivered."""
    reader: str = ""
    """Which reader of which process `arrival` counts for."""
    arrival: int = Field(default=0, ge=0)
    """How many of the job's lines had arrived at that reader when the last one delivered did."""
    lost: int = Field(default=0, ge=0)
    """How many of the job's lines are known to be lost on their way."""
    lost_there: int = Field(default=0, ge=0)
    """How many of these that reader had counted."""

    def not_before(self, ns: int) -> StorePosition:
        """Return the position without the lines before `ns`."""
        kept = tuple(mark for mark in self.marks if mark.ns >= ns)
        return self.model_copy(
            update={"begin_ns": max(self.begin_ns, ns), "since_ns": max(self.since_ns, ns), "marks": kept}
        )


class FileEnd(Value):
    """Where an attempt's output ends in a file: what stands behind that is the next attempt's."""

    offset: int = Field(ge=0)
    """Of the unfinished last line, else of the end."""
    fingerprint: str
    """As `LogCursor.fingerprint`, of the bytes before `offset`."""
    size: int = Field(ge=0)


class LogCursor(Value):
    """Where the reading of one source stopped. Small, and all that is needed to go on there."""

    source: str = Field(max_length=4_096)
    """A file's absolute path, or for a job in a store ``<store>:<job id>``."""
    offset: int = Field(default=0, ge=0)
    """Bytes before the first line not yet delivered."""
    line: int | None = 0
    """Newlines before `offset`; None where nobody counted them."""
    fingerprint: str = ""
    """A digest of the last bytes before `offset`: other bytes there mean that the file was written anew."""
    read_to: int = Field(default=0, ge=0)
    """How far the last read looked: `offset` and the unfinished line behind it."""
    mtime_ns: int = 0
    """The source's time of change then."""
    skipping: bool = False
    """`offset` lies in the middle of a line that is to be left out to its end."""
    quiet_since: float = 0.0
    """Since when, in seconds of our clock, the unfinished last line has not grown; 0 when there is none."""
    shown_bytes: int = Field(default=0, ge=0)
    """How much of the unfinished last line was delivered already."""
    end: FileEnd | None = None
    """Before what place a stretch is read again; None: to the file's end."""
    host: str = ""
    """The node that alone writes to a file; empty: several do, or it is not known."""
    store: StorePosition | None = None
    """Where reading stands in a store, which uses nothing else of this but `source`; None for a file."""

    @property
    def holds_back(self) -> bool:
        """Whether an unfinished last line was read that is not delivered so far."""
        return not self.skipping and self.read_to - self.offset > self.shown_bytes

    def at_start(self) -> LogCursor:
        """Return the cursor at the start of the same source."""
        return LogCursor(source=self.source, host=self.host)

    def until(self, at: datetime) -> LogCursor:
        """Return the cursor for reading what is older than `at`, where the lines' times tell."""
        if self.store is None:
            return self
        return self.model_copy(update={"store": self.store.model_copy(update={"until_ns": nanoseconds(at)})})

    def before(self, end: LogCursor) -> LogCursor:
        """Return the cursor for reading a stretch that ends where reading stood at `end`, a cursor of the same source.
        In a store the lines' times tell: those before its `until`, however late they come, and all that were there."""
        if self.store is None or end.store is None:
            place = FileEnd(offset=end.offset, fingerprint=end.fingerprint, size=max(end.offset, end.read_to))
            return self.model_copy(update={"end": place})
        heard_ns = [mark.ns + 1 for mark in end.store.marks]
        until_ns = max(end.store.until_ns or 0, end.store.since_ns, *heard_ns)
        return self.model_copy(update={"store": self.store.model_copy(update={"until_ns": until_ns})})


@dataclass(frozen=True, slots=True)
class Chunk:
    """The lines that one read brought."""

    lines: list[LogLine]
    cursor: LogCursor
    state: SourceState
    truncated: bool = False
    """The limit was reached and there is more: read again before concluding anything from silence."""
    rewritten: bool = False
    """The file was written anew (Slurm does so at a requeue without ``--open-mode=append``): `lines` begin at its
    start, and what stood there before is gone."""
    detail: str = ""
    """Why it could not be read, for people."""
    unknown_for_s: float = 0.0
    """How long ago the source was last known to have nothing newer: silence counts only up to then."""

    @property
    def caught_up(self) -> bool:
        """Whether silence in these lines is silence of the job: all of the log was read just now."""
        return self.state is SourceState.FRESH and not self.truncated


@dataclass(frozen=True, slots=True)
class LogRange:
    """A stretch of a log, read again for evidence."""

    lines: list[LogLine]
    state: SourceState
    omitted_bytes: int = 0
    """What was left out between the head and the tail, because the stretch is longer than was asked for."""
    rewritten: bool = False
    """The file was written anew after the cursor or its end was made: what they pointed to is gone, and `lines` is
    empty."""
    detail: str = ""


class LogSource(Protocol):
    """A source of log lines: files on a shared file system, a log store, or several of these."""

    @property
    def lag_s(self) -> float:
        """How long a line may be on its way from the program to here."""
        ...

    def sources(self, record: JobRecord) -> tuple[str, ...]:
        """Return where the lines of the job in `record` are to be found, each a `LogCursor.source`."""
        ...

    def look(self, record: JobRecord) -> None:
        """See to it that the places are found in which the attempt in `record` writes; `sources` tells of them then."""
        ...

    def is_over(self, source: str, record: JobRecord) -> bool:
        """Whether `source` is an earlier attempt's only, and the one in `record` does not write to it."""
        ...

    def family(self, source: str) -> str:
        """Return which log source serves `source`: what one family has, another may have too. Empty: none does."""
        ...

    async def beginning(self, source: str, record: JobRecord) -> LogCursor | None:
        """Return a cursor at the first line of the attempt in `record`, which nobody has followed so far; None while
        that is not known."""
        ...

    def not_before(self, cursor: LogCursor, record: JobRecord) -> LogCursor:
        """Return `cursor` without lines that are older than the attempt in `record`, where their times tell."""
        ...

    async def read(self, cursor: LogCursor, limit_bytes: int = ...) -> Chunk:
        """Return what came after `cursor`, about `limit_bytes` at most, and the cursor to go on from."""
        ...

    async def end(self, source: str, back_bytes: int = 0) -> LogCursor:
        """Return a cursor at the end of `source`, or about `back_bytes` before it; at its start if it can't be read."""
        ...

    async def read_range(self, start: LogCursor, max_bytes: int) -> LogRange:
        """Return everything after `start`, up to its end where it has one; its head and its tail when that is more than
        `max_bytes`."""
        ...

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """The log stores that can't be seen, as a whole; files are looked at one by one, each with its job."""
        ...

    @property
    def lost_lines(self) -> Mapping[str, int]:
        """How many lines of all jobs each log store is known to have lost, by the store's name."""
        ...

    async def close(self) -> None:
        """Give up what reading holds."""
        ...
