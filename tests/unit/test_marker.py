"""The mark in a job's AdminComment, beside whatever a site keeps there."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.marker import (
    KEPT_CHARS,
    MAX_ADMIN_COMMENT_BYTES,
    Account,
    Marker,
    read_marker,
    write_marker,
)

SINCE = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MARK = Marker(holds="recovery/alpha/17@1772366400#0.1", since=SINCE, why="the GPU on node02 has fallen off the bus")

keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)
reasons = st.text(st.characters(codec="utf-8"), max_size=200)
marks = st.one_of(
    st.builds(Marker, holds=keys, since=st.datetimes(timezones=st.just(UTC)), why=reasons),
    st.builds(Account, did=keys, why=reasons),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
any_text = st.text(st.characters(), max_size=300)
"""Lone surrogates included: what a decoder left of bytes that are not UTF-8."""


@given(before=any_text, mark=marks)
def test_what_is_written_beside_any_text_is_read_back(before: str, mark: Marker | Account) -> None:
    assert read_marker(write_marker(before, mark)) == mark


@given(before=any_text, first=marks, second=marks)
def test_a_mark_takes_the_place_of_the_one_before_it(
    before: str, first: Marker | Account, second: Marker | Account
) -> None:
    assert write_marker(write_marker(before, first), second) == write_marker(before, second)


@given(site=st.dictionaries(st.text().filter(lambda key: key != "relight"), json_values, max_size=5), mark=marks)
def test_other_keys_of_a_sites_json_keep_their_values(site: dict[str, object], mark: Marker | Account) -> None:
    written = json.loads(write_marker(json.dumps(site), mark))

    del written["relight"]
    assert written == site


@given(before=st.text(st.characters(codec="utf-8"), min_size=1, max_size=300), mark=marks)
def test_text_that_is_no_json_object_is_kept_under_was(before: str, mark: Marker | Account) -> None:
    written = json.loads(write_marker(f"ticket {before}", mark))

    assert written["was"] == f"ticket {before}"


@pytest.mark.parametrize("before", ["[1, 2]", "17", '"text"', "null", "{", "{'relight': 1}"])
def test_json_that_is_no_object_is_kept_as_text(before: str) -> None:
    assert json.loads(write_marker(before, MARK))["was"] == before


def test_an_empty_comment_gets_the_mark_alone() -> None:
    assert json.loads(write_marker("", MARK)) == {
        "relight": {"holds": MARK.holds, "since": "2026-03-01T12:00:00Z", "why": MARK.why}
    }


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "see ticket 4711",
        "relight",
        "{}",
        '{"relight": null}',
        '{"relight": "held"}',
        '{"relight": []}',
        '{"relight": {}}',
        '{"relight": {"holds": "a"}}',
        '{"relight": {"holds": 1, "since": "2026-03-01T12:00:00Z"}}',
        '{"relight": {"holds": "a", "since": "yesterday"}}',
        '{"relight": {"holds": "a", "since": 1e999}}',
        '{"relight": {"did": ["a"]}}',
        '{"relight": {"did": "a", "why": "' + "x" * 201 + '"}}',
        '{"was": "{\\"relight\\": {\\"did\\": \\"a\\"}}"}',
        "[" * 100_000,
        "[" * 10_000,
        '{"a":' * 5_000,
        "9" * 5_000,
        '{"relight": ' + "9" * 5_000 + "}",
    ],
    ids=range(20),
)
def test_what_is_not_ours_is_no_mark(comment: str) -> None:
    assert read_marker(comment) is None


def test_a_comment_of_any_depth_can_be_marked() -> None:
    for depth in range(1, 1_100):
        assert read_marker(write_marker('{"a":' * depth + "1" + "}" * depth, MARK)) == MARK


def test_a_comment_of_any_length_can_be_marked() -> None:
    for before in ("[" * 10_000, "\\" * 31_000, "\x01" * 100_000, "\ud800" * 9_000):
        written = write_marker(before, MARK)
        assert read_marker(written) == MARK
        assert len(written.encode()) <= MAX_ADMIN_COMMENT_BYTES


@given(before=st.text(st.sampled_from('x"\\\x01é🔥\ud800'), min_size=1, max_size=9), times=st.integers(1, 20_000))
def test_no_written_comment_is_longer_than_slurm_is_sure_to_take(before: str, times: int) -> None:
    text = (before * times)[:MAX_ADMIN_COMMENT_BYTES]
    written = write_marker(text, MARK)

    assert len(written.encode()) <= MAX_ADMIN_COMMENT_BYTES
    assert read_marker(written) == MARK
    assert json.loads(written)["was"].startswith(text[:KEPT_CHARS])


def test_marking_again_and_again_does_not_let_the_comment_grow() -> None:
    text = 'a "site" keeps much \\ here. ' * 200
    once = write_marker(text, MARK)
    again = once
    for generation in range(20):
        again = write_marker(again, Account(did=f"recovery/alpha/17@1772366400#0.{generation}"))
    assert write_marker(again, MARK) == once
