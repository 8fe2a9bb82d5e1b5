"""What the watchdog decides, from records alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.scheduler.marker import Account, Marker, read_marker, write_marker
from activities.scheduler.overdue import Leave, OurHold, Release, Sightings, decide, our_hold
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from tests.protocol.parts import JOB, START, an_advice
from tests.watchdog.parts import DEADLINE, a_held_job, our_mark

S = timedelta(seconds=1)


def held(**changes: Any) -> OurHold:
    hold = our_hold(a_held_job(**changes))
    assert isinstance(hold, OurHold)
    return hold


def test_a_hold_of_ours_is_released_at_its_deadline_and_not_before() -> None:
    assert isinstance(decide(our_hold(a_held_job()), DEADLINE - S, DEADLINE), Leave)
    release = decide(our_hold(a_held_job()), DEADLINE, DEADLINE)
    assert isinstance(release, Release)
    assert release.hold.job == JOB
    assert (release.hold.attempt, release.hold.restart_count, release.hold.why) == (0, 1, "a GPU is gone")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"admin_comment": ""}, "not marked"),
        ({"admin_comment": '{"relight": {"holds": 1}}'}, "not marked"),
        ({"admin_comment": "held by relight since noon"}, "not marked"),
        ({"admin_comment": write_marker("", Account(did=an_advice().key))}, "not marked"),
        ({"hold": Hold.USER}, "held by another than relight"),
        ({"hold": Hold.ADMIN}, "held by another than relight"),
        ({"hold": Hold.LAUNCH_FAILED}, "held by another than relight"),
        ({"hold": Hold.NONE}, "not held"),
        *(({"state": state}, "not pending") for state in JobState if state is not JobState.PENDING),
        ({"flags": frozenset({JobFlag.COMPLETING})}, "still ending"),
        ({"restart_count": 2}, "requeued by another"),
        ({"job_id": "2"}, "not of an advice for this job"),
        ({"job_id": "1_1"}, "not of an advice for this job"),
    ],
)
def test_everything_else_is_left_alone_however_long_it_waits(changes: dict[str, Any], reason: str) -> None:
    left = decide(our_hold(a_held_job(**changes)), timedelta(days=365), DEADLINE)
    assert isinstance(left, Leave)
    assert reason in left.reason


@pytest.mark.parametrize(
    "key",
    [
        *("", "1", "recovery/alpha/1", "recovery/alpha/1@1#0", "recovery//1@1#0.1", f"recovery/{'a' * 50}/1@1#0.1"),
        *("recovery/alpha/1@1#0.1\n", "x recovery/alpha/1@1#0.1", f"recovery/alpha/1@{'9' * 11}#0.1"),
    ],
)
def test_a_mark_that_names_no_advice_is_not_ours(key: str) -> None:
    comment = write_marker("", Marker(holds=key, since=START))
    assert isinstance(decide(our_hold(a_held_job(admin_comment=comment)), timedelta(days=1), DEADLINE), Leave)


def test_an_array_tasks_own_hold_is_ours() -> None:
    job = JOB.model_copy(update={"job_id": "1_2"})
    found = our_hold(a_held_job(job_id="1_2", admin_comment=our_mark(job=job)))
    assert isinstance(found, OurHold)
    assert found.job == job


def test_a_mark_without_a_time_zone_counts_as_utc() -> None:
    assert held(admin_comment=our_mark(since=START.replace(tzinfo=None))).since == START


# --- how long ---------------------------------------------------------------------------------------------------------


def ages(sightings: Sightings, hold: OurHold, *, now: datetime, monotonic_s: float) -> timedelta:
    return sightings.look([hold], now=now, monotonic_s=monotonic_s)[hold.key]


def test_a_fresh_process_believes_the_mark_so_that_restarts_do_not_prolong_a_hold() -> None:
    assert ages(Sightings(), held(), now=START + 45 * S, monotonic_s=7.0) == 45 * S


def test_a_hold_is_no_older_than_the_requeue_that_led_to_it() -> None:
    hold = held(submitted_at=START + 30 * S)
    assert ages(Sightings(), hold, now=START + 45 * S, monotonic_s=7.0) == 15 * S


@pytest.mark.parametrize("ahead", [timedelta(seconds=5), timedelta(days=4000)])
def test_a_mark_from_the_future_counts_from_when_it_was_first_seen(ahead: timedelta) -> None:
    sightings, hold = Sightings(), held(admin_comment=our_mark(since=START + ahead))
    assert ages(sightings, hold, now=START, monotonic_s=0.0) == timedelta()
    assert ages(sightings, hold, now=START + 60 * S, monotonic_s=60.0) == 60 * S


def test_a_mark_of_a_clock_that_is_behind_is_no_older_than_the_reading_that_did_not_show_it() -> None:
    sightings = Sightings()
    hold = held(admin_comment=our_mark(since=START - timedelta(hours=3)), submitted_at=START - timedelta(hours=3))
    sightings.look([], now=START, monotonic_s=100.0)
    assert ages(sightings, hold, now=START + 30 * S, monotonic_s=130.0) == 30 * S


def test_after_a_silence_of_the_scheduler_the_mark_tells_how_long_the_hold_has_lasted() -> None:
    sightings = Sightings()
    sightings.look([], now=START - 100 * S, monotonic_s=0.0)
    assert ages(sightings, held(), now=START + 200 * S, monotonic_s=300.0) == 200 * S


def test_our_own_clock_may_be_set_while_a_job_is_held() -> None:
    sightings = Sightings()
    assert ages(sightings, held(), now=START + 1 * S, monotonic_s=1.0) == 1 * S
    assert ages(sightings, held(), now=START + timedelta(days=1), monotonic_s=31.0) == 31 * S
    assert ages(sightings, held(), now=START - timedelta(days=1), monotonic_s=61.0) == 61 * S


def test_a_worker_that_renews_its_mark_does_not_prolong_the_hold() -> None:
    sightings = Sightings()
    ages(sightings, held(), now=START, monotonic_s=0.0)
    renewed = held(admin_comment=our_mark(since=START + 50 * S))
    assert ages(sightings, renewed, now=START + 60 * S, monotonic_s=60.0) == 60 * S


def test_a_later_hold_of_the_same_job_counts_from_its_own_beginning() -> None:
    sightings = Sightings()
    ages(sightings, held(), now=START, monotonic_s=0.0)
    later = START + 500 * S
    again = held(restart_count=2, submitted_at=later, admin_comment=our_mark(attempt=1, since=later))
    assert ages(sightings, again, now=later + 5 * S, monotonic_s=505.0) == 5 * S


# --- whatever the record ----------------------------------------------------------------------------------------------

AWARE = st.datetimes(timezones=st.timezones())
COMMENTS = st.one_of(
    st.text(),
    st.builds(lambda since: our_mark(since=since), st.datetimes() | AWARE),
    st.builds(lambda key, site: write_marker(site, Marker(holds=key, since=START)), st.text(), st.text()),
    st.builds(lambda key: write_marker("", Account(did=key)), st.text()),
)
RECORDS = st.builds(
    JobRecord,
    job_id=st.sampled_from(["1", "2", "1_1"]),
    state=st.sampled_from(JobState),
    hold=st.sampled_from(Hold),
    flags=st.frozensets(st.sampled_from(JobFlag), max_size=2),
    restart_count=st.integers(0, 3),
    submitted_at=AWARE,
    admin_comment=COMMENTS,
)


@settings(deadline=None)
@given(record=RECORDS, held_for=st.timedeltas(min_value=timedelta()))
def test_only_a_pending_job_in_the_hold_of_a_requeue_with_our_mark_is_ever_released(
    record: JobRecord, held_for: timedelta
) -> None:
    if isinstance(decide(our_hold(record), held_for, DEADLINE), Release):
        marker = read_marker(record.admin_comment)
        assert isinstance(marker, Marker)
        assert record.state is JobState.PENDING
        assert record.hold is Hold.REQUEUED
        assert record.restart_count <= 1
        assert record.job_id == "1"
        assert held_for >= DEADLINE


@settings(deadline=None)
@given(
    begun=st.floats(0, 200),
    worker_off=st.sampled_from([0.0, -1e6, 1e6, -30.0, 30.0]),
    slurm_off=st.sampled_from([0.0, -1e6, 1e6]),
    steps=st.lists(st.floats(0.5, 40), min_size=20, max_size=20),
)
def test_a_watchdog_that_was_there_releases_in_time_and_never_early_whatever_the_other_clocks_say(
    begun: float, worker_off: float, slurm_off: float, steps: list[float]
) -> None:
    sightings, at = Sightings(), 0.0
    sightings.look([], now=START, monotonic_s=at)
    hold = held(
        admin_comment=our_mark(since=START + (begun + worker_off) * S), submitted_at=START + (begun + slurm_off) * S
    )
    for step in steps:
        at += step
        if at < begun:
            sightings.look([], now=START + at * S, monotonic_s=at)
            continue
        held_for = ages(sightings, hold, now=START + at * S, monotonic_s=at)
        slack = timedelta(milliseconds=1)
        assert held_for >= (at - begun) * S - max(steps) * S - slack, "held for longer than deadline and one interval"
        if worker_off >= 0 and slurm_off >= 0:
            assert held_for <= (at - begun) * S + slack, "released early"
        assert held_for <= (at - begun) * S + max(steps) * S + slack, "released early by more than one interval"
