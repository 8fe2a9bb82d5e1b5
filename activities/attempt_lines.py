"""The output of one attempt, whoever wants it: its own lines, and no other attempt's."""

from __future__ import annotations

from collections.abc import Sequence

from activities.assessment import AttributeOrder
from activities.logs.protocol import LogCursor, LogRange, LogSource, SourceState
from recovery.attribution.incident import LogLine

MAX_LOG_BYTES = 4 * 1024 * 1024
"""Read per attribution at most, head and tail, over all files of the job: about 3 s of one core."""


class AttemptLines:
    """Reads attempts again from where their output began."""

    def __init__(self, logs: LogSource) -> None:
        self._logs = logs

    async def of(self, order: AttributeOrder) -> tuple[LogLine, ...]:
        """Return the attempt's lines, from the first family of sources that has them and can be read whole."""
        began = tuple(cursor for cursor in order.began if self._logs.family(cursor.source))
        by_family: dict[str, list[LogCursor]] = {}
        for cursor in began or await self._unwatched(order):
            by_family.setdefault(self._logs.family(cursor.source), []).append(cursor)
        best: tuple[LogLine, ...] = ()
        for cursors in by_family.values():
            lines, whole = await self._lines_of(order, cursors)
            if lines and whole:
                return lines
            best = best or lines
        return best

    async def _lines_of(self, order: AttributeOrder, began: Sequence[LogCursor]) -> tuple[tuple[LogLine, ...], bool]:
        share = MAX_LOG_BYTES // max(1, len(began))
        stretches = [(cursor.source, await self._stretch(order, cursor, share)) for cursor in began]
        lines = tuple(
            LogLine(
                text=line.text,
                source=source,
                number=line.number,
                at=line.at,
                host=line.host,
                rank=line.rank,
                stream=line.stream,
            )
            for source, stretch in stretches
            for line in stretch.lines
        )
        return lines, all(stretch.state is SourceState.FRESH for _, stretch in stretches)

    async def _stretch(self, order: AttributeOrder, began: LogCursor, max_bytes: int) -> LogRange:
        """Read a source from where the attempt's output began to where it ended. A file that was written anew since it
        began holds it from its first line on, unless the next attempt wrote it."""
        for end in order.ended:
            if end.source == began.source:
                began = began.before(end)
        if order.next_has_started and order.record.started_at is not None:
            began = began.until(order.record.started_at)
        stretch = await self._logs.read_range(began, max_bytes)
        if stretch.rewritten and not order.next_has_started:
            return await self._logs.read_range(began.at_start().model_copy(update={"end": began.end}), max_bytes)
        return stretch

    async def _unwatched(self, order: AttributeOrder) -> tuple[LogCursor, ...]:
        """Where the output of an attempt begins that nobody watched: in files the first one's is all there is. Of a
        later one nothing tells there where it begins, and an earlier one's lines would count for it."""
        if order.next_has_started:
            return ()
        record = order.record.model_copy(update={"restart_count": order.attempt})
        found = [await self._logs.beginning(source, record) for source in self._logs.sources(record)]
        return tuple(cursor for cursor in found if cursor is not None)
