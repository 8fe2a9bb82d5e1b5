"""A log store as a `LogSource`: each job one source, ``<store>:<job id>``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import structlog

from activities.blindness import Blindness
from activities.logs.protocol import Chunk, LogCursor, LogRange, SourceState, StorePosition, nanoseconds
from activities.logs.stores.followed import lines_of
from activities.logs.stores.paging import DAY_NS, Page, Pager
from activities.logs.stores.protocol import Entry, LogStore, Window
from activities.logs.stores.reader import FUTURE_S, StoreReader
from activities.logs.stores.settings import StoreSettings
from activities.scheduler.protocol import JobRecord, JobState
from activities.stores.errors import StoreError

log = structlog.get_logger(__name__)

START_TOLERANCE_S = 1.0
"""How much earlier than the scheduler's start of an attempt its first line may be: clocks differ, and the scheduler's
has whole seconds. Between two attempts of a job lies more."""
RANGE_TIMEOUT_S = 60.0
_QUESTIONS_AT_ONCE = 4
_RANGE_ENTRIES = 2_000
"""Asked for at once of a stretch, so that its head and tail are little longer than they should be."""
_ENTRY_BYTES = 64


class StoreLogs:
    """Serves all jobs of a cluster from one store; one instance for all watches of a process."""

    def __init__(self, store: LogStore, settings: StoreSettings) -> None:
        self.reader = StoreReader(store, settings)
        self._store = store
        self._name = settings.called
        self._settings = settings
        self._pager = Pager(store, most_entries=_RANGE_ENTRIES)
        self._turns = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    @property
    def lag_s(self) -> float:
        """How long a line may be on its way from the program to here."""
        return 3.0 if self._settings.tail else self._settings.poll_interval_s + 1.0

    def sources(self, record: JobRecord) -> tuple[str, ...]:
        """Return where the lines of the job in `record` are to be found: in one place."""
        return (f"{self._name}:{record.job_id}",)

    def look(self, record: JobRecord) -> None:
        """Nothing: all of a job's lines are in one place."""

    def is_over(self, source: str, record: JobRecord) -> bool:  # noqa: ARG002 - as above
        """No: lines of all attempts are in one place."""
        return False

    def family(self, source: str) -> str:
        """Return the store's name for its own sources; empty for others."""
        return self._name if source.startswith(f"{self._name}:") else ""

    async def beginning(self, source: str, record: JobRecord) -> LogCursor | None:
        """Return a cursor at the attempt's start as the scheduler tells it; None while it does not."""
        if record.started_at is None or record.state is JobState.PENDING:
            return None
        begin_ns = _start_ns(record)
        return LogCursor(source=source, store=StorePosition(begin_ns=begin_ns, since_ns=begin_ns))

    def not_before(self, cursor: LogCursor, record: JobRecord) -> LogCursor:
        """Return `cursor` without lines that are older than the attempt in `record`."""
        if cursor.store is None or record.started_at is None or _start_ns(record) <= cursor.store.begin_ns:
            return cursor
        return cursor.model_copy(update={"store": cursor.store.not_before(_start_ns(record))})

    async def read(self, cursor: LogCursor, limit_bytes: int = 1 << 20) -> Chunk:
        """Return what has arrived after `cursor`; nothing is asked for here, and nothing waited for."""
        position = cursor.store or _from_now_on()
        job = self.reader.follow(self._job_id(cursor.source), position)
        taken = job.take(position, limit_bytes, time.monotonic())
        state, detail = self.reader.sight(job)
        if state is SourceState.FRESH and job.complete and not taken.position.marks:
            state = SourceState.MISSING
            detail = f"{self._name} has no line of it so far: is `{self._settings.labels.job_id}` the job's id there?"
        behind = cursor if taken.position is position else cursor.model_copy(update={"store": taken.position})
        truncated = taken.more or not job.complete
        unknown_for_s = self.reader.unknown_for_s(job)
        lines = lines_of(taken.entries)
        return Chunk(lines, behind, state, truncated=truncated, detail=detail, unknown_for_s=unknown_for_s)

    async def end(self, source: str, back_bytes: int = 0) -> LogCursor:
        """Return a cursor behind the job's newest line, or about `back_bytes` of its lines before; where the store does
        not answer, one at the present time."""
        now_ns = time.time_ns()
        window = Window(now_ns - DAY_NS, now_ns + int(FUTURE_S * 1e9))
        try:
            async with asyncio.timeout(self._settings.timeout_s), self._turns:
                newest = await self._newest((self._job_id(source),), window, back_bytes)
        except (StoreError, TimeoutError) as error:
            log.warning("where a job's lines end is not known", source=source, error=str(error) or "no answer in time")
            return LogCursor(source=source, store=_from_now_on())
        begin_ns = window.start_ns if not newest else newest[-1].ns if back_bytes else newest[0].ns + 1
        return LogCursor(source=source, store=StorePosition(begin_ns=begin_ns, since_ns=begin_ns))

    async def read_range(self, start: LogCursor, max_bytes: int) -> LogRange:
        """Return everything after `start`; when that is more than `max_bytes`, the first quarter of it and the last
        three, and `omitted_bytes` is 1: how much lies between is not known."""
        position = start.store or _from_now_on()
        end_ns = position.until_ns or time.time_ns() + int(FUTURE_S * 1e9)
        window = Window(max(position.begin_ns, position.since_ns), end_ns)
        job_ids = (self._job_id(start.source),)
        try:
            async with asyncio.timeout(RANGE_TIMEOUT_S), self._turns:
                head, reached_ns = await _until(max_bytes // 4, self._pager.forward(job_ids, window))
                rest = Window(reached_ns, window.end_ns)
                tail, down_to_ns = await _until(max_bytes - max_bytes // 4, self._pager.backward(job_ids, rest))
        except TimeoutError:
            detail = f"{self._name} did not answer within {RANGE_TIMEOUT_S:g} s"
            return LogRange([], SourceState.UNREADABLE, detail=detail)
        except StoreError as error:
            return LogRange([], SourceState.UNREADABLE, detail=str(error))
        known = {entry.digest: entry for entry in (*head, *reversed(tail)) if entry.digest not in _digests(position)}
        lines = lines_of(sorted(known.values(), key=lambda entry: entry.ns))
        return LogRange(lines, SourceState.FRESH, omitted_bytes=int(down_to_ns > rest.start_ns))

    async def _newest(self, job_ids: tuple[str, ...], window: Window, max_bytes: int) -> list[Entry]:
        if max_bytes:
            return (await _until(max_bytes, self._pager.backward(job_ids, window)))[0]
        return await self._store.page(job_ids, window, 1, newest_first=True)

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """The store, while it can't be seen and jobs are followed in it."""
        return self.reader.blindnesses

    @property
    def lost_lines(self) -> Mapping[str, int]:
        """How many lines of all jobs are known to be lost."""
        return {self._name: self.reader.lost_lines}

    async def close(self) -> None:
        """Stop reading, and give up the connections."""
        await self.reader.close()

    def _job_id(self, source: str) -> str:
        return source.removeprefix(f"{self._name}:")


async def _until(max_bytes: int, pages: AsyncGenerator[Page, None]) -> tuple[list[Entry], int]:
    """Read pages until they are `max_bytes`; return the entries, and up to where all are known."""
    entries: list[Entry] = []
    size, reached_ns = 0, 0
    async with aclosing(pages) as asked:
        async for page in asked:
            entries += page.entries
            size += sum(len(entry.text) + _ENTRY_BYTES for entry in page.entries)
            reached_ns = page.reached_ns
            if entries and size >= max_bytes:
                break
    return entries, reached_ns


def _digests(position: StorePosition) -> frozenset[str]:
    return frozenset(mark.digest for mark in position.marks)


def _start_ns(record: JobRecord) -> int:
    if record.started_at is None:
        raise ValueError(f"job {record.job_id} has not started")
    return max(0, nanoseconds(record.started_at) - int(START_TOLERANCE_S * 1e9))


def _from_now_on() -> StorePosition:
    now_ns = time.time_ns()
    return StorePosition(begin_ns=now_ns, since_ns=now_ns)
