"""One job's lines between the store and its readers: whatever arrives in whatever order, each line is told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from activities.logs.protocol import MAX_MARKS, StorePosition
from activities.logs.stores.followed import KEEP_S, MAX_WAITING_BYTES, FollowedJob
from activities.logs.stores.protocol import Entry

BEGIN = StorePosition(begin_ns=1_000, since_ns=1_000)


def entry(ns: int, text: str = "") -> Entry:
    return Entry("1", ns, text or f"line at {ns}")


def stored(position: StorePosition) -> StorePosition:
    """What is left of a position after the way through a heartbeat."""
    return StorePosition.model_validate_json(position.model_dump_json())


@given(
    arrivals=st.lists(st.lists(st.integers(900, 1_060), max_size=30), max_size=8),
    limit_bytes=st.sampled_from([1, 50, 1_000_000]),
)
def test_each_line_of_the_attempt_is_told_once_however_often_it_arrives(
    arrivals: list[list[int]], limit_bytes: int
) -> None:
    job, position, told = FollowedJob(BEGIN), BEGIN, []
    for seconds, times in enumerate(arrivals):
        job.accept(map(entry, times), float(seconds))
        more = True
        while more:
            taken = job.take(position, limit_bytes, float(seconds))
            position, more = stored(taken.position), taken.more
            told += [line.ns for line in taken.entries]
    expected = {ns for times in arrivals for ns in times if ns >= BEGIN.begin_ns}
    assert sorted(told) == sorted(expected)
    assert len(position.marks) <= MAX_MARKS


@given(
    before=st.lists(st.integers(1_000, 1_100), max_size=80),
    after=st.lists(st.integers(1_000, 1_100), max_size=20),
)
def test_a_successor_is_told_all_that_is_newer_than_its_marks_and_nothing_twice(
    before: list[int], after: list[int]
) -> None:
    first = FollowedJob(BEGIN)
    first.accept(map(entry, before), 0.0)
    position = stored(first.take(BEGIN, 1_000_000, 0.0).position)
    successor = FollowedJob(position)
    successor.accept(map(entry, [*before, *after]), 0.0)
    told = [line.ns for line in successor.take(position, 1_000_000, 0.0).entries]
    assert sorted(told) == sorted({ns for ns in after if ns >= position.since_ns} - set(before))
    if len(set(before)) <= MAX_MARKS:
        assert sorted(told) == sorted(set(after) - set(before))


def test_an_earlier_position_of_the_same_reader_is_served_again_while_its_lines_are_kept() -> None:
    job = FollowedJob(BEGIN)
    job.accept([entry(1_001)], 0.0)
    early = job.take(BEGIN, 1_000, 0.0).position
    job.accept([entry(1_002)], 1.0)
    assert [line.ns for line in job.take(early, 1_000, 1.0).entries] == [1_002]
    assert job.can_serve(early)
    assert [line.ns for line in job.take(early, 1_000, 2.0).entries] == [1_002]


def test_lines_that_were_read_are_given_up_after_a_while_and_those_that_were_not_are_kept() -> None:
    job = FollowedJob(BEGIN)
    job.accept([entry(1_001)], 0.0)
    early = job.take(BEGIN, 1_000, 0.0).position
    job.accept([entry(1_002)], 1.0)
    late = job.take(early, 1_000, 1.0).position
    job.accept([entry(1_003)], 2.0)
    taken = job.take(late, 1_000, 10 * KEEP_S)
    assert [line.ns for line in taken.entries] == [1_003]
    job.take(taken.position, 1_000, 20 * KEEP_S)
    assert not job.can_serve(early)
    assert not job.can_serve(BEGIN)
    assert job.can_serve(taken.position)


def test_a_job_that_nobody_reads_is_full_some_time_and_not_when_it_was_read() -> None:
    job = FollowedJob(BEGIN)
    job.accept([entry(1_000 + n, "x" * 1_000_000) for n in range(10)], 0.0)
    assert job.full
    assert sum(len(line.text) for line in job.take(BEGIN, MAX_WAITING_BYTES * 2, 0.0).entries) == 10_000_000
    assert not job.full


def test_more_lines_of_one_moment_than_marks_are_not_told_again() -> None:
    job = FollowedJob(BEGIN)
    lines = [entry(2_000, str(n)) for n in range(3 * MAX_MARKS)]
    job.accept(lines, 0.0)
    position = stored(job.take(BEGIN, 1_000_000, 0.0).position)
    successor = FollowedJob(position)
    successor.accept([*lines, entry(2_001)], 0.0)
    assert [line.ns for line in successor.take(position, 1_000_000, 0.0).entries] == [2_001]


def test_what_is_pushed_too_late_is_lost_and_counted_for_whoever_reads_on() -> None:
    job = FollowedJob(BEGIN)
    job.accept([entry(1_500)], 0.0, pushed=True)
    job.known_to(1_400)
    job.accept([entry(1_200), entry(999)], 1.0)
    job.accept([entry(1_200)], 2.0, pushed=True)
    job.accept([entry(999)], 3.0, pushed=True)
    first = job.take(BEGIN, 1_000, 3.0)
    assert [line.ns for line in first.entries] == [1_500]
    assert first.position.lost == 1, "999 is an earlier attempt's, and what is asked for comes again and again"
    job.accept([entry(1_201)], 4.0, pushed=True)
    second = job.take(first.position, 1_000, 4.0)
    assert second.position.lost == 2
    assert job.take(second.position, 1_000, 4.0).position.lost == 2
    successor = FollowedJob(stored(second.position))
    successor.known_to(1_600)
    successor.accept([entry(1_550)], 5.0, pushed=True)
    assert successor.take(stored(second.position), 1_000, 5.0).position.lost == 3
