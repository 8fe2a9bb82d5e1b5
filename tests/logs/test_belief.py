from __future__ import annotations

from datetime import UTC, datetime, timedelta

from activities.logs.belief import GIVE_UP_S, Belief

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDER = ("files", "loki")
BOTH = frozenset(ORDER)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_line_that_two_families_have_counts_once() -> None:
    belief = Belief[str]()
    assert belief.take({"files": ["one"], "loki": ["one"]}, BOTH, ORDER, at(0)) == ["one"]
    assert belief.take({"files": ["two"], "loki": []}, BOTH, ORDER, at(1)) == ["two"]
    assert belief.take({"files": [], "loki": ["two"]}, BOTH, ORDER, at(2)) == []


def test_another_family_takes_over_with_what_it_said_since_the_first_was_lost() -> None:
    belief = Belief[str]()
    belief.take({"files": ["one"], "loki": ["one"]}, BOTH, ORDER, at(0))
    lost = frozenset({"loki"})
    assert belief.take({"loki": ["two"]}, lost, ORDER, at(1)) == []
    assert belief.take({"loki": ["three"]}, lost, ORDER, at(GIVE_UP_S)) == ["two", "three"]
    assert belief.family == "loki"
    assert belief.take({"loki": ["four"]}, lost, ORDER, at(GIVE_UP_S + 1)) == ["four"]


def test_the_first_family_does_not_come_back_with_lines_that_were_told_already() -> None:
    belief = Belief[str]()
    belief.take({"files": [], "loki": []}, BOTH, ORDER, at(0))
    belief.take({"loki": ["one"]}, frozenset({"loki"}), ORDER, at(GIVE_UP_S))
    assert belief.take({"files": ["one"], "loki": ["two"]}, BOTH, ORDER, at(GIVE_UP_S + 1)) == ["two"]


def test_the_last_family_is_believed_however_long_it_cannot_be_read() -> None:
    belief = Belief[str]()
    for second in range(0, 100, 10):
        assert belief.take({"files": [], "loki": []}, frozenset(), ORDER, at(second)) == []
    assert belief.take({"files": ["one"]}, BOTH, ORDER, at(101)) == ["one"]


def test_a_family_that_is_configured_no_more_is_not_believed() -> None:
    belief = Belief[str]()
    belief.take({"loki": ["one"]}, frozenset({"loki"}), ("loki",), at(0))
    assert belief.take({"files": ["two"]}, frozenset({"files"}), ("files",), at(1)) == ["two"]
