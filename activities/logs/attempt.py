"""The output of one attempt, wherever it is to be found, read on from where the last reading stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from activities.logs.belief import Belief
from activities.logs.protocol import Chunk, LogCursor, LogLine, LogSource, SourceState
from activities.scheduler.protocol import JobRecord, JobState

READ_LIMIT_BYTES = 4 * 1024 * 1024
"""Of one source in one round, so that a flood of lines does not keep other jobs waiting."""
DRAIN_S = 0.5
"""How long after an attempt's end its last lines may still arrive, at least."""
MOST_DRAIN_S = 8.0
"""How long is read on after an attempt's end: a process that was left behind may write for ever."""
DRAIN_POLL_S = 0.4
_GRAVEST_FIRST = (SourceState.UNREADABLE, SourceState.STALE, SourceState.MISSING)


class HeardLine(NamedTuple):
    """A line, with where and when it was read."""

    source: str
    line: LogLine
    at: datetime


class AttemptLog:
    """Follows one attempt's output. Silence of it counts only while all of its sources can be read to their ends; where
    the same lines are in several places, of those of one place (see `activities.logs.belief`)."""

    def __init__(
        self,
        logs: LogSource,
        *,
        began: tuple[LogCursor, ...] = (),
        cursors: tuple[LogCursor, ...] = (),
        heard_at: datetime | None = None,
    ) -> None:
        self._logs = logs
        self.began = tuple(cursor for cursor in began if logs.family(cursor.source))
        """Where the attempt's output begins; empty: not known yet."""
        self.cursors = tuple(cursor for cursor in cursors if logs.family(cursor.source)) or self.began
        """Where reading stands."""
        self.heard_at = heard_at
        """The last time that all sources could be read."""
        self.caught_up = True
        """Whether the last reading reached the end of all sources."""
        self.read_out: tuple[str, ...] = ()
        """Which sources the last reading read to the end of what they held."""
        self.unknown_for = timedelta()
        """How long ago the last reading's sources were known to have nothing newer."""
        self.sight = SourceState.FRESH
        self.trouble = ""
        """What the stores say of why they can't be read, for people."""
        self._belief = Belief[HeardLine]()
        self._record: JobRecord | None = None
        self._confirmed_at: datetime | None = None
        self._rewritten_at: datetime | None = None

    def belongs_to(self, record: JobRecord, read_at: datetime | None) -> None:
        """Take the scheduler's word, read at `read_at`, that the attempt in `record` is the one that writes."""
        self._record, self._confirmed_at = record, read_at
        if record.state is not JobState.PENDING:
            self.began = tuple(self._logs.not_before(cursor, record) for cursor in self.began)
            self.cursors = tuple(self._logs.not_before(cursor, record) for cursor in self.cursors)

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the job's lines are to be found, as far as that is known."""
        return self._logs.sources(self._record) if self._record is not None else ()

    @property
    def lost_lines(self) -> int:
        """How many of the attempt's lines are known to be lost on their way, of those places that are believed."""
        both = zip(self.began, self.cursors, strict=True)
        return sum(_lost(cursor) - _lost(began) for began, cursor in both if self._is_believed(cursor))

    def _is_believed(self, cursor: LogCursor) -> bool:
        return self._logs.family(cursor.source) == self._belief.family

    def silent_since(self, now: datetime) -> datetime:
        """Return since when the sources can't all be read: at the latest since now."""
        self.heard_at = self.heard_at or now
        return self.heard_at

    async def ends(self) -> tuple[LogCursor, ...]:
        """Return where the sources end now."""
        return tuple([await self._logs.end(cursor.source) for cursor in self.cursors])

    def begin_at(self, ends: tuple[LogCursor, ...]) -> None:
        """Leave out what stands before `ends`: the attempt had not started yet when they were looked up, so it has not
        written any of it. What an earlier attempt wrote while it was being ended never counts for this one."""
        # The end of a source that can't be read is told as its start.
        self.began = self.cursors = tuple(max(pair, key=_place) for pair in zip(self.cursors, ends, strict=True))

    async def read(self) -> list[HeardLine]:
        """Read what is new, about `READ_LIMIT_BYTES` of each source at most."""
        await self._find_beginnings()
        chunks = [await self._logs.read(cursor, READ_LIMIT_BYTES) for cursor in self.cursors]
        now = datetime.now(UTC)
        if self._may_be_of_the_next_attempt(chunks, now):
            self.caught_up, self.read_out = False, ()
            return []
        self.began = tuple(
            began.at_start() if chunk.rewritten else began for began, chunk in zip(self.began, chunks, strict=True)
        )
        self.cursors = tuple(chunk.cursor for chunk in chunks)
        self.read_out = tuple(chunk.cursor.source for chunk in chunks if chunk.caught_up)
        return self._believe(chunks, now)

    async def _find_beginnings(self) -> None:
        if self._record is None:
            return
        self._logs.look(self._record)
        self._leave_what_is_over(self._record)
        known = {cursor.source for cursor in self.cursors}
        for source in self.sources:
            if source not in known and (found := await self._logs.beginning(source, self._record)) is not None:
                self.began += (found,)
                self.cursors += (found,)

    def _leave_what_is_over(self, record: JobRecord) -> None:
        over = {cursor.source for cursor in self.cursors if self._logs.is_over(cursor.source, record)}
        self.began = tuple(cursor for cursor in self.began if cursor.source not in over)
        self.cursors = tuple(cursor for cursor in self.cursors if cursor.source not in over)

    def _believe(self, chunks: list[Chunk], now: datetime) -> list[HeardLine]:
        by_family: dict[str, list[Chunk]] = {}
        for source in self.sources:
            by_family.setdefault(self._logs.family(source), [])
        for chunk in chunks:
            by_family.setdefault(self._logs.family(chunk.cursor.source), []).append(chunk)
        sights = {family: self._sight_of(family, of_family) for family, of_family in by_family.items()}
        lines = {
            family: [HeardLine(chunk.cursor.source, line, now) for chunk in of_family for line in chunk.lines]
            for family, of_family in by_family.items()
        }
        fresh = frozenset(family for family, sight in sights.items() if sight is SourceState.FRESH)
        heard = self._belief.take(lines, fresh, tuple(by_family), now)
        self._note_sight(sights.get(self._belief.family), by_family.get(self._belief.family, []), now)
        return heard

    async def drain(self) -> AsyncIterator[HeardLine]:
        """Read what an ended attempt still has to say. A last line without an end counts once it is quiet."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(DRAIN_S, self._logs.lag_s))
        give_up_at = loop.time() + MOST_DRAIN_S
        while loop.time() < give_up_at:
            before = self.cursors
            for heard in await self.read():
                yield heard
            if any(cursor.holds_back for cursor in self.cursors):
                await asyncio.sleep(DRAIN_POLL_S)
            elif before == self.cursors:
                return

    def _may_be_of_the_next_attempt(self, chunks: list[Chunk], now: datetime) -> bool:
        """Slurm writes an output file anew when the next attempt starts, and its own word on that may come later. Lines
        of a file that was written anew since the attempt was heard in it wait for that word."""
        if not any(chunk.rewritten and heard for chunk, heard in zip(chunks, self._was_heard(), strict=True)):
            return False
        self._rewritten_at = self._rewritten_at or now
        over = self._record is not None and self._record.state.ended
        if not over and (self._confirmed_at is None or self._confirmed_at <= self._rewritten_at):
            return True
        self._rewritten_at = None
        return False

    def _was_heard(self) -> Iterator[bool]:
        return (cursor.offset != began.offset for cursor, began in zip(self.cursors, self.began, strict=True))

    def _sight_of(self, family: str, chunks: list[Chunk]) -> SourceState:
        """Progress may stand in any source of a family: silence of the others says nothing while one can't be read."""
        unread = {chunk.state for chunk in chunks} - {SourceState.FRESH}
        begun = {chunk.cursor.source for chunk in chunks}
        if any(source not in begun and self._logs.family(source) == family for source in self.sources):
            unread.add(SourceState.UNREADABLE)
        if not chunks and not unread:
            return SourceState.MISSING
        return next((state for state in _GRAVEST_FIRST if state in unread), SourceState.FRESH)

    def _note_sight(self, sight: SourceState | None, chunks: list[Chunk], now: datetime) -> None:
        self.sight = sight or SourceState.MISSING
        if self.sight is SourceState.FRESH:
            self.heard_at = now
        self.trouble = "; ".join(dict.fromkeys(chunk.detail for chunk in chunks if chunk.detail and chunk.cursor.store))
        self.caught_up = self.sight is SourceState.FRESH and not any(chunk.truncated for chunk in chunks)
        self.unknown_for = timedelta(seconds=max((chunk.unknown_for_s for chunk in chunks), default=0.0))


def _lost(cursor: LogCursor) -> int:
    return cursor.store.lost if cursor.store is not None else 0


def _place(cursor: LogCursor) -> int:
    return cursor.store.since_ns if cursor.store is not None else cursor.offset
