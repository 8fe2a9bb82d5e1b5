"""Log files on a shared file system, followed by plain stat and read.

No inotify: it does not see what other hosts write to NFS or Lustre. Each read opens the file anew, which makes an NFS
client ask its server (close-to-open consistency), and runs on a thread (see `activities.logs.turns`), because a file
system that hangs must not hang the process: a read without an answer in time makes its file unreadable.

What happens to the last line of a file: it is kept back until its end arrives, for a writer may be in the middle of it.
When it has not grown for a second it is delivered as incomplete, once for each length, because a dying process or a
progress bar may never end its line; it comes again, whole, if it is finished after all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from activities.blindness import Blindness
from activities.logs.protocol import Chunk, LogCursor, LogLine, LogRange, SourceState
from activities.logs.reading import cursor_before_end, read_after, read_stretch
from activities.logs.steps import StepFiles
from activities.logs.turns import Turns
from activities.scheduler.protocol import JobRecord

FILES = "files"
"""The family of all files."""
LAG_S = 0.5
"""How long the last lines of a process may take to be seen by other hosts."""
READ_LIMIT_BYTES = 1 << 20
READ_TIMEOUT_S = 5.0
RANGE_TIMEOUT_S = 60.0
_NOWHERE = ("", "/dev/null")


class FileTail:
    """A `LogSource` over files; one instance serves all jobs of a process."""

    def __init__(
        self,
        steps: StepFiles | None = None,
        *,
        timeout_s: float = READ_TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`steps`: finds the files of jobs' steps; None: only what Slurm tells of is read."""
        self._steps = steps
        self._reads = Turns[Chunk]()
        self._ranges = Turns[LogRange]()
        self._ends = Turns[LogCursor]()
        self._timeout_s = timeout_s
        self._clock = clock

    @property
    def lag_s(self) -> float:
        """How long a line may be on its way from the program to here."""
        return LAG_S

    def sources(self, record: JobRecord) -> tuple[str, ...]:
        """Return the paths of the files that the job and, as far as they are found, its steps write to, each once."""
        told = (path for path in (record.stdout, record.stderr) if path not in _NOWHERE)
        return tuple(dict.fromkeys((*told, *self._of_steps(record))))

    def look(self, record: JobRecord) -> None:
        """Have the files of the job's steps looked for."""
        if self._steps is not None:
            self._steps.look(record)

    def is_over(self, source: str, record: JobRecord) -> bool:
        """Whether `source` is the file of an earlier attempt's steps."""
        return self._steps is not None and self._steps.is_over(source, record)

    def family(self, source: str) -> str:
        """All files are one family: a job writes its lines to one of them each, not all of them to every one."""
        return FILES if source.startswith("/") else ""

    async def beginning(self, source: str, record: JobRecord) -> LogCursor | None:
        """Return the start of the file for a first attempt, whose output is all of it; for a later one its end, for
        nothing tells where that one's output begins in an appended file, so that only what comes from now on counts.
        So it is for a step's file, but for one that is the attempt's own by its name.
        None while the file can't be read: the lines that it holds are an earlier attempt's."""
        start = LogCursor(source=source, host=self._steps.host(source, record) if self._steps is not None else "")
        if self._is_whole(source, record):
            return start
        seen = await self.read(start, 1)
        if seen.state is SourceState.UNREADABLE:
            return None
        end = await self.end(source)
        return end.model_copy(update={"host": start.host}) if end.offset >= seen.cursor.offset else None

    def _of_steps(self, record: JobRecord) -> tuple[str, ...]:
        return self._steps.found(record) if self._steps is not None else ()

    def _is_whole(self, source: str, record: JobRecord) -> bool:
        if self._steps is not None and source in self._of_steps(record):
            return self._steps.is_whole(source, record)
        return record.restart_count == 0

    def not_before(self, cursor: LogCursor, record: JobRecord) -> LogCursor:  # noqa: ARG002 - a file's lines have no time
        """Return `cursor`."""
        return cursor

    async def read(self, cursor: LogCursor, limit_bytes: int = READ_LIMIT_BYTES) -> Chunk:
        """Return what came after `cursor`. Never raises for what a file is or does; see `SourceState`."""
        now = self._clock()
        chunk = await self._reads.ask(cursor.source, lambda: read_after(cursor, limit_bytes, now), self._timeout_s)
        if chunk is None:
            return Chunk([], cursor, SourceState.UNREADABLE, detail="its file system does not answer")
        return replace(chunk, lines=_of_host(chunk.lines, cursor.host))

    async def end(self, source: str, back_bytes: int = 0) -> LogCursor:
        """Return a cursor `back_bytes` before the end of `source`; at its start when it can't be read. Line numbers are
        unknown behind more than 256 MiB, which would take too long to count."""
        cursor = await self._ends.ask(source, lambda: cursor_before_end(source, back_bytes), RANGE_TIMEOUT_S)
        return cursor or LogCursor(source=source)

    async def read_range(self, start: LogCursor, max_bytes: int) -> LogRange:
        """Return everything after `start` and before its end, the unfinished last line included; when that is more than
        `max_bytes`, the first quarter of those bytes and the last three."""
        stretch = await self._ranges.ask(start.source, lambda: read_stretch(start, max_bytes), RANGE_TIMEOUT_S)
        if stretch is None:
            return LogRange([], SourceState.UNREADABLE, detail="its file system does not answer")
        return replace(stretch, lines=_of_host(stretch.lines, start.host))

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """None: each file is looked at with its job."""
        return ()

    @property
    def lost_lines(self) -> Mapping[str, int]:
        """None: a file has all its lines."""
        return {}

    async def close(self) -> None:
        """Give up the threads; one that waits for a dead file system is left behind."""
        if self._steps is not None:
            self._steps.close()
        for turns in (self._reads, self._ranges, self._ends):
            turns.close()


def _of_host(lines: list[LogLine], host: str) -> list[LogLine]:
    return [line._replace(host=host) for line in lines] if host else lines
