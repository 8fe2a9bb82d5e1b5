"""Raw bytes into lines, and prefixes into rank, host and time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.signatures.lines import MAX_LINE_BYTES, LineSplitter, parse_prefix
from recovery.signatures.stamps import parse_stamp, with_year

LOG_BYTES = st.lists(
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b"step 1", b"\x1b[31mred\x1b[0m", b"\xff\xfe", "é▏".encode(), b" ", b"a: b"]
    )
).map(b"".join)


def _lines(*parts: bytes) -> list[str]:
    splitter = LineSplitter()
    return [line for part in parts for line in splitter.feed(part)] + splitter.flush()


@given(LOG_BYTES, st.integers(0, 200), st.integers(0, 200))
def test_a_write_torn_at_any_byte_gives_the_same_lines(data: bytes, first: int, second: int) -> None:
    first, second = sorted((first % (len(data) + 1), second % (len(data) + 1)))
    assert _lines(data[:first], data[first:second], data[second:]) == _lines(data)


@given(LOG_BYTES)
def test_reading_again_from_behind_the_pending_bytes_loses_nothing(data: bytes) -> None:
    splitter = LineSplitter()
    seen = splitter.feed(data)
    cursor = len(data) - splitter.pending_bytes
    assert seen + _lines(data[cursor:]) == _lines(data)


def test_carriage_returns_end_lines_and_terminal_codes_vanish() -> None:
    assert _lines(b"10%|#\r20%|##\r\n\x1b[32mloss: 1\x1b[0m\x1b]0;title\x07 ok\n\n") == [
        "10%|#",
        "20%|##",
        "loss: 1 ok",
    ]


def test_a_line_of_ten_megabytes_costs_sixteen_kilobytes() -> None:
    splitter = LineSplitter()
    for _ in range(10):
        assert splitter.feed(b"x" * 1_000_000) == []
    assert splitter.pending_bytes == 10_000_000
    (line,) = splitter.feed(b"\n")
    assert len(line) == MAX_LINE_BYTES
    assert splitter.pending_bytes == 0


@given(st.text(max_size=300))
def test_any_text_has_a_prefix_and_a_rest_that_it_ends_with(text: str) -> None:
    assert text.endswith(parse_prefix(text).rest)


@pytest.mark.parametrize(
    ("line", "rank", "task", "host", "rest"),
    [
        ("[rank12]: Traceback", 12, None, "", "Traceback"),
        ("[rank12]:[E502 00:04:48.896125702 ProcessGroupNCCL.cpp:1] x", 12, None, "", "ProcessGroupNCCL.cpp:1] x"),
        (" 3: NVRM: Xid", None, 3, "", "NVRM: Xid"),
        ("10: [rank10]: KeyError: 'x'", 10, 10, "", "KeyError: 'x'"),
        ("node03: NVRM: Xid", None, None, "node03", "NVRM: Xid"),
        ("node03:82:83 [1] NCCL INFO Bootstrap", None, None, "node03", "NCCL INFO Bootstrap"),
        ("[2026-01-02 03:04:05] n1:1:2 [0] x.cc:1 NCCL WARN y", None, None, "n1", "x.cc:1 NCCL WARN y"),
        ("Jul 11 21:41:58 gpu-13 kernel: [858315.400000] NVRM: y", None, None, "gpu-13", "NVRM: y"),
        ("2025-05-01T00:00:00.123456+02:00 node7 kernel: NVRM: y", None, None, "node7", "NVRM: y"),
        ("[Sun Jan 19 05:13:04 2025] nvidia-nvswitch2: SXid", None, None, "", "nvidia-nvswitch2: SXid"),
        ("[default3]:hello", None, None, "", "hello"),
        ("[1,17]<stderr>:KeyError: 'x'", 17, None, "", "KeyError: 'x'"),
        ("[RANK 3] hello", 3, None, "", "hello"),
        ("[trainer|rank=3] hello", 3, None, "", "hello"),
        ("[rank=3]: hello", 3, None, "", "hello"),
        ("[PG ID 1 PG GUID 1 Rank 3] hello", None, None, "", "[PG ID 1 PG GUID 1 Rank 3] hello"),
        ("rank3[4711][MainThread]: hello", 3, None, "", "hello"),
        ("trainer-1  | [rank5]: KeyError: 'x'", 5, None, "", "KeyError: 'x'"),
        ('trainer-1  |   File "/x.py", line 3', None, None, "", '  File "/x.py", line 3'),
        ("layers | 12", None, None, "", "layers | 12"),
        ('(WorkerDict pid=321, ip=10.0.0.2)   File "/x.py", line 3', None, None, "", '  File "/x.py", line 3'),
        ("(Trainer pid=321) [rank5]: KeyError: 'x'", 5, None, "", "KeyError: 'x'"),
        ("(see the log for pid=3 of it) hello", None, None, "", None),
        ("(a note) hello", None, None, "", "(a note) hello"),
        ("KeyError: 'x'", None, None, "", "KeyError: 'x'"),
        ('  File "/x.py", line 3', None, None, "", '  File "/x.py", line 3'),
        ("24/1752 [01:08<1:22:56,  2.88s/it][rank5]:[E602 11:17:52.185 X.cpp:1] late", 5, None, "", None),
    ],
)
def test_prefixes_of_launchers_loggers_and_collectors(
    line: str, rank: int | None, task: int | None, host: str, rest: str | None
) -> None:
    prefix = parse_prefix(line)
    assert (prefix.rank, prefix.task, prefix.host) == (rank, task, host)
    assert rest is None or prefix.rest == rest


def test_a_bare_word_is_a_host_only_when_the_allocation_has_it() -> None:
    assert parse_prefix("alpha: hello", nodes=("alpha",)).host == "alpha"
    assert parse_prefix("node9: hello", nodes=("alpha",)).host == ""
    assert parse_prefix("ValueError: hello").host == ""


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2025-03-02 10:11:12,123 - INFO", datetime(2025, 3, 2, 10, 11, 12, 123000, UTC)),
        ("[2025-03-02T10:11:12.5Z] x", datetime(2025, 3, 2, 10, 11, 12, 500000, UTC)),
        ("2025/03/02 10:11:12 x", datetime(2025, 3, 2, 10, 11, 12, 0, UTC)),
        ("Mar  2 10:11:12 host x", datetime(2025, 3, 2, 10, 11, 12, 0, UTC)),
        ("[Sun Mar  2 10:11:12 2025] x", datetime(2025, 3, 2, 10, 11, 12, 0, UTC)),
        ("[Mar 02 2025 10:11:12] x", datetime(2025, 3, 2, 10, 11, 12, 0, UTC)),
        ("E0302 10:11:12.000000 9039 api.py:869] x", datetime(2025, 3, 2, 10, 11, 12, 0, UTC)),
        ("[E302 10:11:12.000000123 x.cpp:1] y", datetime(2025, 3, 2, 10, 11, 12, 0, UTC)),
        ("[  858315.400000] x", None),
        ("2025-13-45 99:99:99 x", None),
    ],
)
def test_time_stamps_of_every_common_form(text: str, stamp: datetime | None) -> None:
    found, length = parse_stamp(text)
    assert length > 0
    assert (with_year(found, datetime(2025, 6, 1, tzinfo=UTC)) if found else None) == stamp


def test_a_stamp_without_a_year_falls_on_the_near_side_of_new_year() -> None:
    found, _ = parse_stamp("Dec 31 23:59:58 host x")
    assert found is not None
    assert with_year(found, datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)) == datetime(2025, 12, 31, 23, 59, 58, tzinfo=UTC)
