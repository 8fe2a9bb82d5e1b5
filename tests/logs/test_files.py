from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.logs.files import FileTail
from activities.logs.protocol import LogCursor, LogLine, SourceState
from activities.logs.reading import cursor_before_end, read_after, read_stretch
from tests.embedded.places import open_directory

LIMIT = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "slurm-1.out"


@pytest.fixture
async def tail() -> AsyncIterator[FileTail]:
    source = FileTail()
    yield source
    await source.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


async def test_new_lines_come_once_with_their_numbers(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"one\n\ntwo\n")
    first = await tail.read(LogCursor(source=str(log)))
    assert first.lines == [LogLine(1, "one"), LogLine(3, "two")]
    assert first.caught_up
    append(log, b"three\n")
    second = await tail.read(first.cursor)
    assert second.lines == [LogLine(4, "three")]
    assert (await tail.read(second.cursor)).lines == []


async def test_a_cursor_survives_being_stored(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"one\ntw")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    append(log, b"o\n")
    restored = LogCursor.model_validate_json(cursor.model_dump_json())
    assert (await tail.read(restored)).lines == [LogLine(2, "two")]


async def test_a_file_that_is_not_there_yet_is_missing_and_then_read(log: Path, tail: FileTail) -> None:
    missing = await tail.read(LogCursor(source=str(log)))
    assert (missing.state, missing.caught_up) == (SourceState.MISSING, False)
    log.write_bytes(b"one\n")
    assert texts((await tail.read(missing.cursor)).lines) == ["one"]


async def test_a_file_that_does_not_grow_is_fresh(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"one\n")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    again = await tail.read(cursor)
    assert (again.state, again.caught_up, again.lines) == (SourceState.FRESH, True, [])


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket-path", "null byte", "too long", "under a file"])
async def test_what_is_no_log_file_is_a_state_and_never_blocks(kind: str, tmp_path: Path, tail: FileTail) -> None:
    path = tmp_path / "x"
    source = str(path)
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket-path":
        source = "/dev/null"
    elif kind == "null byte":
        source = f"{path}\0"
    elif kind == "too long":
        source = f"{tmp_path}/{'x' * 3_000}"
    else:
        path.write_text("a file")
        source = f"{path}/below"
    chunk = await tail.read(LogCursor(source=source))
    expected = SourceState.MISSING if kind == "under a file" else SourceState.UNREADABLE
    assert (chunk.state, chunk.lines) == (expected, [])
    assert chunk.detail
    assert (await tail.read_range(LogCursor(source=source), 1_000)).state is expected
    assert await tail.end(source) == LogCursor(source=source)


async def test_a_file_without_permission_is_unreadable(tail: FileTail) -> None:
    # pytest's own directories are closed to other accounts, and root may read everything.
    with open_directory() as directory:
        log = directory / "job.log"
        log.write_bytes(b"one\n")
        log.chmod(0)
        with as_another_account():
            assert (await tail.read(LogCursor(source=str(log)))).state is SourceState.UNREADABLE


@contextmanager
def as_another_account() -> Iterator[None]:
    """Root does without its rights for a moment; anybody else has none to do without."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_a_truncated_file_is_read_from_its_new_start(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"attempt 0\nstep 1\nstep 2\n")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    log.write_bytes(b"attempt 1\n")
    chunk = await tail.read(cursor)
    assert (chunk.rewritten, chunk.lines) == (True, [LogLine(1, "attempt 1")])
    assert not (await tail.read(chunk.cursor)).rewritten


async def test_a_file_rewritten_to_a_greater_length_is_noticed(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"attempt 0\nstep 1\n")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    log.write_bytes(b"attempt 1\nstep 1\nstep 2\nstep 3\n")
    chunk = await tail.read(cursor)
    assert chunk.rewritten
    assert texts(chunk.lines) == ["attempt 1", "step 1", "step 2", "step 3"]


async def test_a_file_rewritten_to_the_same_length_is_noticed(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"attempt 0\n")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    log.write_bytes(b"attempt 1\n")
    os.utime(log, ns=(1, 1))
    assert texts((await tail.read(cursor)).lines) == ["attempt 1"]


async def test_a_rotated_file_is_read_from_the_start_of_the_new_one(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"old 1\nold 2\n")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"new one, and longer than the old one was\n")
    assert texts((await tail.read(cursor)).lines) == ["new one, and longer than the old one was"]


async def test_a_file_that_other_bytes_precede_has_nulls_removed(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"\0" * 5_000 + b"after a hole\n")
    assert texts((await tail.read(LogCursor(source=str(log)))).lines) == ["after a hole"]


async def test_a_progress_bar_that_draws_over_itself_gives_a_line_for_each_drawing(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"begin\n\r 1/10\x1b[A\r 2/10\r 3/10")
    chunk = await tail.read(LogCursor(source=str(log)))
    assert chunk.lines == [LogLine(1, "begin"), LogLine(2, " 1/10"), LogLine(2, " 2/10")]
    append(log, b"\r 4/10\nend\n")
    assert (await tail.read(chunk.cursor)).lines == [LogLine(2, " 3/10"), LogLine(2, " 4/10"), LogLine(3, "end")]


def test_an_unfinished_line_is_shown_once_when_it_is_quiet_and_again_when_it_is_whole(log: Path) -> None:
    log.write_bytes(b"one\nSegmentation fau")
    chunk = read_after(LogCursor(source=str(log)), LIMIT, 100.0)
    assert texts(chunk.lines) == ["one"]
    chunk = read_after(chunk.cursor, LIMIT, 100.5)
    assert chunk.lines == []
    chunk = read_after(chunk.cursor, LIMIT, 101.1)
    assert chunk.lines == [LogLine(2, "Segmentation fau", complete=False)]
    chunk = read_after(chunk.cursor, LIMIT, 105.0)
    assert chunk.lines == []
    append(log, b"lt\n")
    assert read_after(chunk.cursor, LIMIT, 106.0).lines == [LogLine(2, "Segmentation fault")]


def test_a_line_that_is_still_written_is_not_shown(log: Path) -> None:
    cursor = LogCursor(source=str(log))
    shown: list[LogLine] = []
    for step in range(20):
        append(log, b"x")
        chunk = read_after(cursor, LIMIT, 100.0 + step * 0.6)
        cursor, shown = chunk.cursor, shown + chunk.lines
    assert shown == []


def test_a_line_of_ten_megabytes_is_cut_and_what_follows_is_read(log: Path) -> None:
    log.write_bytes(b"a" * 10_000_000 + b" end\nnext\n")
    cursor, reads = LogCursor(source=str(log)), 0
    lines: list[LogLine] = []
    while True:
        chunk = read_after(cursor, 100_000, 100.0)
        cursor, lines, reads = chunk.cursor, lines + chunk.lines, reads + 1
        if not chunk.truncated:
            break
    assert [(line.number, len(line.text)) for line in lines] == [(1, 16_384), (2, 4)]
    assert reads <= 101


def test_a_read_is_bounded_and_says_that_there_is_more(log: Path) -> None:
    log.write_bytes(b"".join(b"line %d\n" % n for n in range(50_000)))
    chunk = read_after(LogCursor(source=str(log)), 70_000, 100.0)
    assert (chunk.truncated, chunk.caught_up) == (True, False)
    assert len(chunk.lines) < 10_000


async def test_bytes_that_are_no_text_are_tolerated(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"\xff\xfe\x80 caf\xc3\xa9 \x1b[31mred\x1b[0m\r\n")
    assert texts((await tail.read(LogCursor(source=str(log)))).lines) == ["\ufffd\ufffd\ufffd café red"]


async def test_the_end_of_a_file_is_behind_all_its_lines(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"one\ntwo\n")
    cursor = await tail.end(str(log))
    append(log, b"three\n")
    assert (await tail.read(cursor)).lines == [LogLine(3, "three")]


def test_a_cursor_before_the_end_begins_with_a_whole_line(log: Path) -> None:
    log.write_bytes(b"first line\nsecond line\nthird line\n")
    cursor = cursor_before_end(str(log), 15)
    assert read_after(cursor, LIMIT, 100.0).lines == [LogLine(3, "third line")]


def test_a_stretch_is_read_to_its_last_byte(log: Path) -> None:
    log.write_bytes(b"one\ntwo\nthr")
    stretch = read_stretch(LogCursor(source=str(log)), LIMIT)
    assert stretch.lines == [LogLine(1, "one"), LogLine(2, "two"), LogLine(3, "thr", complete=False)]
    assert stretch.omitted_bytes == 0


def test_a_long_stretch_keeps_its_head_and_its_tail_with_their_numbers(log: Path) -> None:
    log.write_bytes(b"".join(b"line %06d\n" % n for n in range(1, 10_001)))
    stretch = read_stretch(LogCursor(source=str(log)), 12_000)
    assert stretch.lines[0] == LogLine(1, "line 000001")
    assert stretch.lines[-1] == LogLine(10_000, "line 010000")
    assert all(line.text == f"line {line.number:06d}" for line in stretch.lines)
    assert stretch.omitted_bytes == 120_000 - 12_000
    assert sum(len(line.text) + 1 for line in stretch.lines) <= 12_000


async def test_a_stretch_of_a_file_written_anew_is_gone(log: Path, tail: FileTail) -> None:
    log.write_bytes(b"attempt 0\n")
    cursor = (await tail.read(LogCursor(source=str(log)))).cursor
    log.write_bytes(b"attempt 1\nmore\n")
    stretch = await tail.read_range(cursor, LIMIT)
    assert (stretch.rewritten, stretch.lines) == (True, [])


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(
        st.binary(max_size=30) | st.sampled_from([b"\n", b"\r\n", b"\r", b"word ", b"\xc3\xa9"]), max_size=30
    ),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_writes_torn_at_any_byte_give_the_same_lines_as_one_write(
    pieces: list[bytes], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = b"".join(pieces) + b"\n"
    log = tmp_path_factory.mktemp("torn") / "log"
    log.write_bytes(data)
    whole = read_after(LogCursor(source=str(log)), LIMIT, 100.0)
    log.write_bytes(b"")
    cursor, start = LogCursor(source=str(log)), 0
    lines: list[LogLine] = []
    for cut in [*sorted(cuts), len(data)]:
        append(log, data[start:cut])
        start = max(start, cut)
        chunk = read_after(LogCursor.model_validate_json(cursor.model_dump_json()), LIMIT, 100.0)
        cursor, lines = chunk.cursor, lines + chunk.lines
    assert lines == whole.lines
    assert (cursor.offset, cursor.line) == (whole.cursor.offset, whole.cursor.line)
