"""What every source of log lines does. Subclass `LogSourceConformance` and give it a `place` fixture."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from activities.logs.protocol import Chunk, LogCursor, LogLine, LogSource, SourceState
from activities.scheduler.protocol import JobRecord, JobState
from recovery.signatures.lines import MAX_LINE_BYTES

PATIENCE_S = 30.0
JOB_IDS = map(str, itertools.count(10_001))
"""Each test has a job of its own in a store that it shares with others."""


class Place(Protocol):
    """Where one job of a test writes its lines."""

    job_id: str
    source: LogSource

    def another_source(self) -> LogSource:
        """A source that knows nothing, as another process has it."""
        ...

    async def write(self, *lines: str) -> None: ...

    def record(self, attempt: int, started_at: datetime) -> JobRecord:
        """The job as the scheduler shows it while it runs."""
        ...


def running(job_id: str, attempt: int, started_at: datetime, stdout: str = "/dev/null") -> JobRecord:
    return JobRecord(
        job_id=job_id,
        state=JobState.RUNNING,
        restart_count=attempt,
        submitted_at=started_at,
        started_at=started_at,
        stdout=stdout,
    )


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


async def reads(
    source: LogSource, cursor: LogCursor, enough: Callable[[list[LogLine], Chunk], bool]
) -> tuple[list[LogLine], LogCursor]:
    """Read on until it is enough, then once more, for what comes too often."""
    lines: list[LogLine] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                chunk = await source.read(cursor)
                cursor, lines = chunk.cursor, lines + chunk.lines
                if enough(lines, chunk):
                    break
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(
            f"after {PATIENCE_S:g} s only {texts(lines)[-20:]}, {chunk.state} {chunk.detail}"
        ) from None
    chunk = await source.read(cursor)
    return lines + chunk.lines, chunk.cursor


def at_least(count: int) -> Callable[[list[LogLine], Chunk], bool]:
    return lambda lines, chunk: len(lines) >= count


class LogSourceConformance:
    async def begin(self, place: Place, attempt: int = 0) -> LogCursor:
        record = place.record(attempt, datetime.now(UTC))
        (source,) = place.source.sources(record)
        cursor = await place.source.beginning(source, record)
        assert cursor is not None
        return cursor

    async def test_lines_come_once_and_in_their_order(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write("one", "two")
        first, cursor = await reads(place.source, cursor, at_least(2))
        await place.write("three")
        second, _ = await reads(place.source, cursor, at_least(1))
        assert texts(first + second) == ["one", "two", "three"]

    async def test_silence_of_a_source_that_was_heard_is_fresh(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write("one")
        _, cursor = await reads(place.source, cursor, at_least(1))
        lines, _ = await reads(place.source, cursor, lambda lines, chunk: chunk.caught_up)
        assert lines == []

    async def test_what_has_no_lines_is_missing_and_no_error(self, place: Place) -> None:
        (source,) = place.source.sources(running(next(JOB_IDS), 0, datetime.now(UTC), "/nowhere/at/all.out"))
        cursor = await place.source.beginning(source, place.record(0, datetime.now(UTC)))
        assert cursor is not None
        await place.write("another job's")
        states = (SourceState.MISSING, SourceState.STALE)
        lines, _ = await reads(place.source, cursor, lambda lines, chunk: chunk.state in states)
        assert lines == []

    async def test_a_successor_goes_on_from_a_stored_cursor(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write("one", "two")
        _, cursor = await reads(place.source, cursor, at_least(2))
        await place.write("three")
        stored = LogCursor.model_validate_json(cursor.model_dump_json())
        successor = place.another_source()
        lines, stored = await reads(successor, stored, at_least(1))
        await place.write("four")
        more, _ = await reads(successor, stored, at_least(1))
        assert texts(lines + more) == ["three", "four"]

    async def test_a_stretch_is_read_again_for_evidence(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write("one", "two")
        await reads(place.source, cursor, at_least(2))
        found = await place.source.read_range(cursor, 1 << 20)
        assert (texts(found.lines), found.state, found.omitted_bytes) == (["one", "two"], SourceState.FRESH, 0)

    async def test_a_stretch_ends_where_its_attempt_did(self, place: Place) -> None:
        began = await self.begin(place)
        await place.write("one", "two")
        _, cursor = await reads(place.source, began, at_least(2))
        ended = cursor.until(datetime.now(UTC))
        await asyncio.sleep(0.01)
        await place.write("of the next attempt")
        await reads(place.source, cursor, at_least(1))
        stored = LogCursor.model_validate_json(began.before(ended).model_dump_json())
        found = await place.source.read_range(stored, 1 << 20)
        assert (texts(found.lines), found.state) == (["one", "two"], SourceState.FRESH)

    async def test_of_a_long_stretch_head_and_tail_are_read(self, place: Place) -> None:
        cursor = await self.begin(place)
        count = 6_000
        await place.write(*(f"line {n:06d} {'x' * 80}" for n in range(count)))
        await self.arrived(place, cursor, "line 005999")
        found = await place.source.read_range(cursor, 200_000)
        numbers = [int(line.text.split()[1]) for line in found.lines]
        assert (numbers[0], numbers[-1]) == (0, count - 1)
        assert numbers == sorted(set(numbers))
        assert len(numbers) < count
        assert found.omitted_bytes > 0

    async def arrived(self, place: Place, cursor: LogCursor, last: str) -> None:
        """Wait until a line is there for others to read."""
        await reads(place.source, cursor, lambda lines, chunk: any(last in line.text for line in lines))

    async def test_all_of_a_flood_comes_once(self, place: Place) -> None:
        cursor = await self.begin(place)
        for start in range(0, 12_000, 4_000):
            await place.write(*(f"line {n}" for n in range(start, start + 4_000)))
        lines, _ = await reads(place.source, cursor, at_least(12_000))
        assert texts(lines) == [f"line {n}" for n in range(12_000)]

    async def test_the_end_leaves_out_what_was_there(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write("an earlier attempt's")
        await reads(place.source, cursor, at_least(1))
        end = await place.source.end(cursor.source)
        await place.write("this attempt's")
        lines, _ = await reads(place.source, end, at_least(1))
        assert texts(lines) == ["this attempt's"]

    async def test_a_very_long_line_is_cut(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write("a" * 100_000, "next")
        lines, _ = await reads(place.source, cursor, at_least(2))
        assert [len(line.text) for line in lines] == [MAX_LINE_BYTES, 4]

    async def test_whatever_a_line_holds_it_arrives_clean(self, place: Place) -> None:
        cursor = await self.begin(place)
        await place.write('{"a": "}"} \\ | = ` {x=~".*"}', "\x1b[31mred\x1b[0m", "naïve ☃ \u200b.", "  indented  ")
        lines, _ = await reads(place.source, cursor, at_least(4))
        assert texts(lines) == ['{"a": "}"} \\ | = ` {x=~".*"}', "red", "naïve ☃ \u200b.", "  indented"]
