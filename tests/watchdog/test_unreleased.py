"""Which jobs that were submitted anew the watchdog may release, from records alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.scheduler.lineage import KEY, PROMPT, QUIET
from activities.scheduler.marker import Account, Marker, PassedOver, Replaced, Word, write_marker
from activities.scheduler.overdue import Leave, OurHold
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from activities.scheduler.unreleased import LONGEST_GAP, Readings, Unreleased, find_unreleased
from recovery.model import JobKey
from tests.protocol.parts import START, an_advice
from tests.watchdog.parts import SENT_AT, a_lineage, a_new_job, an_old_job

ORDER = an_advice().key
CAME = SENT_AT + timedelta(seconds=1)
S = timedelta(seconds=1)


def found(*jobs: JobRecord, readings: Readings | None = None) -> Unreleased:
    return find_unreleased(jobs, "alpha", readings or Readings())


def hold_of(*jobs: JobRecord, job_id: str = "7") -> OurHold:
    hold = found(*jobs).holds[job_id]
    assert isinstance(hold, OurHold), hold
    return hold


def said(word: Word) -> str:
    return write_marker("site note", word)


def test_the_first_job_that_was_sent_may_be_released_and_is_to_be_marked() -> None:
    unreleased = found(an_old_job(), a_new_job())
    hold = hold_of(an_old_job(), a_new_job())
    assert hold.job == JobKey(cluster="alpha", job_id="7", submitted_at=CAME)
    assert (hold.stays, hold.since, hold.advice_key) == ("", CAME, ORDER)
    assert (unreleased.unmarked, unreleased.unaccounted) == ([hold], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"comment": ""},
        {"comment": '{"relight":{"mode":"act"}}'},
        {"state": JobState.RUNNING, "hold": Hold.NONE},
        {"restart_count": 1},
        {"admin_comment": said(Account(did=ORDER))},
        {"admin_comment": said(Account(did="another"))},
        {"admin_comment": said(PassedOver(not_for=ORDER))},
        {"admin_comment": said(Marker(holds="another", since=START))},
    ],
)
def test_what_is_no_new_job_or_was_decided_upon_is_not_looked_at(changes: dict[str, Any]) -> None:
    assert found(an_old_job(), a_new_job(**changes)) == Unreleased({}, [], [])


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (a_new_job(hold=Hold.ADMIN), "held by another"),
        (a_new_job(hold=Hold.LAUNCH_FAILED), "held by another"),
        (a_new_job(lineage=a_lineage(order="anything")), "not of an advice"),
        (a_new_job(lineage=a_lineage(of="2")), "not of an advice for the job"),
        (a_new_job(lineage=a_lineage(order=ORDER.replace("alpha", "beta"))), "another cluster (beta)"),
    ],
)
def test_a_hold_of_somebody_elses_and_a_forged_lineage_are_left(new: JobRecord, reason: str) -> None:
    unreleased = found(an_old_job(), new)
    left = unreleased.holds["7"]
    assert isinstance(left, Leave)
    assert reason in left.reason
    assert not unreleased.unmarked
    assert not unreleased.unaccounted


@pytest.mark.parametrize("came", [SENT_AT + PROMPT + S, SENT_AT + timedelta(days=1), SENT_AT - QUIET])
def test_what_did_not_come_when_it_was_sent_and_a_copied_comment_stay_held_and_are_not_written_to(
    came: datetime,
) -> None:
    unreleased = found(an_old_job(), a_new_job(submitted_at=came), a_new_job("9", submitted_at=came))
    assert all(isinstance(hold, OurHold) and "copy" in hold.stays for hold in unreleased.holds.values())
    assert list(unreleased.holds) == ["7", "9"]
    assert (unreleased.unmarked, unreleased.unaccounted) == ([], [])
    assert found(a_new_job(submitted_at=came, hold=Hold.NONE)) == Unreleased({}, [], [])


@pytest.mark.parametrize(
    ("old", "why"),
    [
        ({"state": JobState.COMPLETED}, "has completed"),
        ({"state": JobState.CANCELLED, "ended_at": SENT_AT}, "was cancelled, and not by relight"),
        ({"state": JobState.PENDING, "restart_count": 1}, "was put back"),
        ({"state": JobState.RUNNING, "restart_count": 1, "submitted_at": SENT_AT + QUIET}, "was put back"),
        ({"user": "ben"}, "is another user's"),
    ],
)
def test_where_the_old_job_must_not_come_back_the_new_one_is_passed_over(old: dict[str, Any], why: str) -> None:
    unreleased = found(an_old_job(**old), a_new_job())
    [hold] = unreleased.unaccounted
    assert why in hold.stays
    assert hold.for_good
    assert unreleased.holds == {"7": hold}
    assert not unreleased.unmarked


@pytest.mark.parametrize(
    "old",
    [
        {"state": JobState.RUNNING},
        {"state": JobState.SUSPENDED},
        {"state": JobState.UNKNOWN},
        {"flags": frozenset({JobFlag.COMPLETING})},
    ],
)
def test_as_long_as_the_old_job_has_not_ended_the_new_one_waits(old: dict[str, Any]) -> None:
    unreleased = found(an_old_job(**old), a_new_job())
    assert unreleased.holds["7"] == hold_of(an_old_job(**old), a_new_job())
    assert "has not ended" in hold_of(an_old_job(**old), a_new_job()).stays
    assert (unreleased.unmarked, unreleased.unaccounted) == ([], [])


@pytest.mark.parametrize(
    ("word", "ended", "ours"),
    [
        (Replaced(ends_for=ORDER, since=SENT_AT), 2 * S, True),
        (Replaced(ends_for=ORDER, since=SENT_AT), timedelta(minutes=5), False),
        (Replaced(ends_for="another", since=SENT_AT), 2 * S, False),
        (Account(did=ORDER), 2 * S, False),
    ],
)
def test_a_cancel_of_ours_is_told_from_the_owners_by_its_mark(word: Word, ended: timedelta, ours: bool) -> None:
    old = an_old_job(state=JobState.CANCELLED, ended_at=SENT_AT + ended, admin_comment=said(word))
    assert (hold_of(old, a_new_job(lineage=a_lineage(old_is_over=False))).stays == "") is ours


def test_how_a_forgotten_job_ended_that_ran_then_is_known_only_from_the_mark() -> None:
    new = a_new_job(lineage=a_lineage(old_is_over=False))
    assert "how job 1 ended can't be told" in hold_of(new).stays
    assert hold_of(new.model_copy(update={"admin_comment": said(Marker(holds=ORDER, since=CAME))})).stays == ""
    assert hold_of(a_new_job()).stays == "", "it had ended before"


def test_a_reused_id_is_not_the_old_job() -> None:
    other = an_old_job(state=JobState.RUNNING, user="ben", submitted_at=SENT_AT + timedelta(hours=1))
    assert hold_of(other, a_new_job()).stays == ""


def test_of_two_for_one_order_only_the_older_may_be_released_and_the_other_never() -> None:
    unreleased = found(a_new_job("9"), an_old_job(), a_new_job("7"))
    assert [hold.job.job_id for hold in unreleased.unmarked] == ["7"]
    assert [(hold.job.job_id, hold.for_good) for hold in unreleased.unaccounted] == [("9", True)]
    assert hold_of(a_new_job("9"), a_new_job("7"), job_id="9").stays == "job 7 is the one for its order"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED, JobState.CANCELLED])
def test_when_another_one_has_been_let_run_the_oldest_never_is(state: JobState) -> None:
    ran = a_new_job("9", state=state, hold=Hold.NONE, nodes=("node01",))
    assert "is not held any more" in hold_of(a_new_job(), ran).stays
    cancelled_before = a_new_job("9", state=JobState.CANCELLED, nodes=())
    assert hold_of(a_new_job(), cancelled_before).stays == ""


def test_jobs_of_other_users_do_not_count() -> None:
    others = a_new_job("3", user="eve", state=JobState.RUNNING, hold=Hold.NONE)
    assert hold_of(others, a_new_job()).stays == ""


def test_one_that_was_released_and_not_accounted_for_is_to_be() -> None:
    for word in ("", said(Marker(holds=ORDER, since=CAME))):
        unreleased = found(a_new_job(hold=Hold.NONE, admin_comment=word))
        assert not unreleased.holds
        assert [(hold.job.job_id, hold.for_good) for hold in unreleased.unaccounted] == [("7", False)]


# --- a later one, after others that may have come ---------------------------------------------------------------------

LATER = a_new_job(lineage=a_lineage(first=False))


def watched(readings: Readings, seconds: Iterable[int], *jobs: JobRecord) -> Readings:
    """Takes in a reading at each of `seconds` after `START`."""
    for second in seconds:
        readings.look(jobs, now=START + second * S, monotonic_s=float(second))
    return readings


def stays(readings: Readings) -> str:
    hold = found(LATER, readings=readings).holds["7"]
    assert isinstance(hold, OurHold)
    return hold.stays


def test_a_later_submission_is_released_only_by_who_has_watched_all_the_time() -> None:
    watching = watched(watched(Readings(), range(-30, 10, 20)), range(10, 130, 30), LATER)
    assert stays(watching) == ""
    assert "whether another job ran" in stays(watched(Readings(), range(10, 130, 30), LATER))


def test_a_gap_in_which_another_one_can_have_come_and_gone_counts_as_not_watched() -> None:
    gap = int(LONGEST_GAP.total_seconds()) + 1
    broken = watched(watched(Readings(), range(-30, 0, 10)), (gap, gap + 30), LATER)
    assert "whether another job ran" in stays(broken)


def test_one_that_was_seen_and_is_forgotten_still_counts() -> None:
    earlier = a_new_job("5", state=JobState.FAILED, hold=Hold.NONE)
    seen = watched(watched(Readings(), range(-30, 10, 20)), range(10, 40, 10), earlier, LATER)
    assert "whether another job ran" in stays(watched(seen, range(40, 900, 30), LATER))


def test_what_is_marked_stays_released_whoever_looks() -> None:
    marked = LATER.model_copy(update={"admin_comment": said(Marker(holds=ORDER, since=CAME))})
    assert hold_of(marked).stays == ""


# --- whatever the comment ---------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("\ud800"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
LINEAGES = st.fixed_dictionaries(
    {
        "order": JSON | st.just(ORDER),
        "of": JSON | st.just("1"),
        "count": JSON | st.just(1),
        "since": JSON | st.datetimes().map(str) | st.datetimes(timezones=st.timezones()).map(str),
        "first": JSON | st.booleans(),
        "old_is_over": JSON | st.booleans(),
    }
)
COMMENTS = st.one_of(
    LINEAGES.map(lambda lineage: json.dumps({KEY: lineage})),
    JSON.map(lambda anything: json.dumps({KEY: anything})),
    st.just(f'{{"{KEY}":' + "[" * 4_000),
    st.just(f'{{"{KEY}":' + "9" * 4_000 + "}"),
    st.text().map(lambda text: KEY + text),
)


@settings(deadline=None)
@given(comments=st.lists(COMMENTS, min_size=1, max_size=3), hold=st.sampled_from(Hold), old=st.sampled_from(JobState))
def test_no_comment_breaks_a_look_and_only_a_prompt_job_that_its_owner_could_release_may_be(
    comments: list[str], hold: Hold, old: JobState
) -> None:
    jobs = [a_new_job(str(7 + number), comment=comment, hold=hold) for number, comment in enumerate(comments)]
    readings = Readings()
    readings.look(jobs, now=START, monotonic_s=0.0)
    for each in found(*jobs, an_old_job(state=old), readings=readings).holds.values():
        if isinstance(each, OurHold) and not each.stays:
            assert hold is Hold.USER
            assert old.ended
            assert old is not JobState.COMPLETED
