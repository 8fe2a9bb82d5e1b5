"""One look at one log file, blocking. Whatever the file is or does, the answer is a state and never an exception."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from activities.logs.protocol import Chunk, FileEnd, LogCursor, LogLine, LogRange, SourceState
from activities.logs.splitting import (
    FINGERPRINT_BYTES,
    QUIET_S,
    complete_lines,
    fingerprint,
    take_lines,
    unfinished_line,
)
from recovery.signatures.lines import MAX_LINE_BYTES

_LEAST_LIMIT_BYTES = 4 * MAX_LINE_BYTES
_COUNTED_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20
_MISSING = (errno.ENOENT, errno.ENOTDIR)


def read_after(cursor: LogCursor, limit_bytes: int, now: float) -> Chunk:
    """Return the lines behind `cursor`; `now` is our clock in seconds."""
    try:
        with _opened(cursor.source) as (fd, info):
            if _is_unchanged(cursor, info, now):
                return Chunk([], cursor, SourceState.FRESH)
            before = _bytes_before(fd, cursor.offset)
            if fingerprint(before) != cursor.fingerprint:
                return _read_anew(fd, info, cursor, limit_bytes, now)
            return _read_on(fd, info, cursor, before, limit_bytes, now)
    except OSError as error:
        return Chunk([], cursor, _state_of(error), detail=_reason(error))
    except ValueError as error:
        return Chunk([], cursor, SourceState.UNREADABLE, detail=f"its path can't be used: {error}")


def cursor_before_end(source: str, back_bytes: int) -> LogCursor:
    """Return a cursor `back_bytes` before the end of the file `source`, at its start when it can't be read."""
    try:
        with _opened(source) as (fd, info):
            offset = max(0, info.st_size - back_bytes)
            before = _bytes_before(fd, offset)
            return LogCursor(
                source=source,
                offset=offset,
                line=_newlines(fd, 0, offset),
                fingerprint=fingerprint(before),
                read_to=offset,
                skipping=bool(back_bytes and before) and before[-1:] not in b"\r\n",
            )
    except (OSError, ValueError):
        return LogCursor(source=source)


def read_stretch(start: LogCursor, max_bytes: int) -> LogRange:
    """Return the lines behind `start` and before its end: all, or the first quarter and the last three of
    `max_bytes`."""
    try:
        with _opened(start.source) as (fd, info):
            size = info.st_size if start.end is None else min(info.st_size, start.end.size)
            if not all(_is_as_it_was(fd, place) for place in (start, start.end) if place is not None):
                return LogRange([], SourceState.FRESH, rewritten=True)
            if size - start.offset <= max_bytes:
                whole = _bytes_at(fd, start.offset, size)
                return LogRange(_all_lines(whole, start.line, skipping=start.skipping), SourceState.FRESH)
            return _head_and_tail(fd, size, start, max_bytes)
    except OSError as error:
        return LogRange([], _state_of(error), detail=_reason(error))
    except ValueError as error:
        return LogRange([], SourceState.UNREADABLE, detail=f"its path can't be used: {error}")


@contextmanager
def _opened(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file. Looks before it opens: opening a pipe or a device can have effects of its own."""
    _check_regular(Path(path).stat().st_mode)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        info = os.fstat(fd)
        _check_regular(info.st_mode)
        yield fd, info
    finally:
        os.close(fd)


def _check_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _state_of(error: OSError) -> SourceState:
    return SourceState.MISSING if error.errno in _MISSING else SourceState.UNREADABLE


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__)[:200]


def _is_unchanged(cursor: LogCursor, info: os.stat_result, now: float) -> bool:
    if info.st_size != cursor.read_to or info.st_mtime_ns != cursor.mtime_ns:
        return False
    unfinished = 0 if cursor.skipping else cursor.read_to - cursor.offset
    return unfinished == cursor.shown_bytes or now - cursor.quiet_since < QUIET_S


def _read_on(fd: int, info: os.stat_result, cursor: LogCursor, before: bytes, limit_bytes: int, now: float) -> Chunk:
    end = min(info.st_size, cursor.offset + max(limit_bytes, _LEAST_LIMIT_BYTES))
    new = _bytes_at(fd, cursor.offset, end)
    more = cursor.offset + len(new) < info.st_size
    lines, behind = take_lines(cursor, before, new, now=now, more=more)
    behind = behind.model_copy(update={"mtime_ns": info.st_mtime_ns})
    return Chunk(lines, behind, SourceState.FRESH, truncated=more)


def _read_anew(fd: int, info: os.stat_result, cursor: LogCursor, limit_bytes: int, now: float) -> Chunk:
    chunk = _read_on(fd, info, cursor.at_start(), b"", limit_bytes, now)
    return Chunk(chunk.lines, chunk.cursor, chunk.state, truncated=chunk.truncated, rewritten=True)


def _head_and_tail(fd: int, size: int, start: LogCursor, max_bytes: int) -> LogRange:
    head_end = start.offset + max_bytes // 4
    tail_start = size - (max_bytes - max_bytes // 4)
    head, tail = _bytes_at(fd, start.offset, head_end), _bytes_at(fd, tail_start, size)
    lines = complete_lines(head[: head.rfind(b"\n") + 1], start.line, skipping=start.skipping)
    between = None if start.line is None else _newlines(fd, start.offset, tail_start)
    line = None if start.line is None or between is None else start.line + between
    lines += _all_lines(tail, line, skipping=True)
    return LogRange(lines, SourceState.FRESH, omitted_bytes=tail_start - head_end)


def _all_lines(data: bytes, line: int | None, *, skipping: bool) -> list[LogLine]:
    """Split to the last byte: an unfinished last line counts."""
    if skipping and b"\n" not in data and b"\r" not in data:
        return []
    ended = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    lines = complete_lines(data[:ended], line, skipping=skipping)
    behind = None if line is None else line + data.count(b"\n", 0, ended)
    return lines + unfinished_line(data[ended:], behind)


def _newlines(fd: int, start: int, end: int) -> int | None:
    """Count newlines; None where there is too much to count."""
    if end - start > _COUNTED_BYTES:
        return None
    blocks = range(start, end, _BLOCK_BYTES)
    return sum(_bytes_at(fd, block, min(end, block + _BLOCK_BYTES)).count(b"\n") for block in blocks)


def _is_as_it_was(fd: int, place: LogCursor | FileEnd) -> bool:
    return fingerprint(_bytes_before(fd, place.offset)) == place.fingerprint


def _bytes_before(fd: int, offset: int) -> bytes:
    """What a fingerprint is of."""
    return _bytes_at(fd, max(0, offset - FINGERPRINT_BYTES), offset)


def _bytes_at(fd: int, start: int, end: int) -> bytes:
    """Read ``[start, end)``; less where the file has become shorter."""
    parts = []
    while start < end and (part := os.pread(fd, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
