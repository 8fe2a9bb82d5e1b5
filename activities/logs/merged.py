"""Several places that hold a job's lines, as one source: see `activities.logs.belief` for which of them is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from activities.blindness import Blindness
from activities.logs.protocol import Chunk, LogCursor, LogRange, LogSource, SourceState
from activities.scheduler.protocol import JobRecord

_NOT_CONFIGURED = "no `logs` of the cluster's settings serves it any more"


class MergedLogs:
    """A `LogSource` over others, in the operator's order."""

    def __init__(self, parts: Sequence[LogSource]) -> None:
        self._parts = tuple(parts)

    @property
    def lag_s(self) -> float:
        """How long a line may be on its way from the program to here."""
        return max(part.lag_s for part in self._parts)

    def sources(self, record: JobRecord) -> tuple[str, ...]:
        """Return where the lines of the job in `record` are to be found."""
        return tuple(source for part in self._parts for source in part.sources(record))

    def look(self, record: JobRecord) -> None:
        """Let each part look."""
        for part in self._parts:
            part.look(record)

    def is_over(self, source: str, record: JobRecord) -> bool:
        """Ask the part that serves `source`."""
        part = self._part(source)
        return part is not None and part.is_over(source, record)

    def family(self, source: str) -> str:
        """Return which part serves `source`; empty: none."""
        return next((family for part in self._parts if (family := part.family(source))), "")

    async def beginning(self, source: str, record: JobRecord) -> LogCursor | None:
        """Return a cursor at the attempt's first line; None while that is not known."""
        part = self._part(source)
        return await part.beginning(source, record) if part is not None else None

    def not_before(self, cursor: LogCursor, record: JobRecord) -> LogCursor:
        """Return `cursor` without lines that are older than the attempt in `record`, where their times tell."""
        part = self._part(cursor.source)
        return part.not_before(cursor, record) if part is not None else cursor

    async def read(self, cursor: LogCursor, limit_bytes: int = 1 << 20) -> Chunk:
        """Return what came after `cursor`, about `limit_bytes` at most, and the cursor to go on from."""
        part = self._part(cursor.source)
        if part is None:
            return Chunk([], cursor, SourceState.UNREADABLE, detail=_NOT_CONFIGURED)
        return await part.read(cursor, limit_bytes)

    async def end(self, source: str, back_bytes: int = 0) -> LogCursor:
        """Return a cursor at the end of `source`, or about `back_bytes` before it; at its start if it can't be read."""
        part = self._part(source)
        return await part.end(source, back_bytes) if part is not None else LogCursor(source=source)

    async def read_range(self, start: LogCursor, max_bytes: int) -> LogRange:
        """Return everything after `start`; its head and its tail when that is more than `max_bytes`."""
        part = self._part(start.source)
        if part is None:
            return LogRange([], SourceState.UNREADABLE, detail=_NOT_CONFIGURED)
        return await part.read_range(start, max_bytes)

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """Those of all parts."""
        return tuple(found for part in self._parts for found in part.blindnesses)

    @property
    def lost_lines(self) -> Mapping[str, int]:
        """Those of all parts."""
        return {name: lines for part in self._parts for name, lines in part.lost_lines.items()}

    async def close(self) -> None:
        """Give up what reading holds."""
        for part in self._parts:
            await part.close()

    def _part(self, source: str) -> LogSource | None:
        return next((part for part in self._parts if part.family(source)), None)
