"""A job in the queue that can't start because of what relight keeps it off."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.findings import CannotStart
from activities.kept_waiting import CANNOT_START_AFTER, KeptWaiting
from activities.scheduler.protocol import JobRecord, JobState
from tests.watch.conftest import StartWatch
from tests.watch.scripted import JobUnderWatch, submitted_at

AT = submitted_at(1)
LONG = CANNOT_START_AFTER


def a_job(
    reason: str, state: JobState = JobState.PENDING, excluded: tuple[str, ...] = ("node02", "node09")
) -> JobRecord:
    return JobRecord(job_id="7", state=state, reason=reason, submitted_at=AT, excluded_nodes=excluded)


def test_our_nodes_are_named_once_it_has_lasted() -> None:
    waiting = KeptWaiting(("node02", "node03"))
    assert waiting.for_want_of(a_job("BadConstraints"), AT) == ()
    assert waiting.for_want_of(a_job("BadConstraints"), AT + LONG / 2) == ()
    assert waiting.for_want_of(a_job("BadConstraints"), AT + LONG) == ("node02",)


def test_a_new_try_of_slurm_between_is_no_end_of_it() -> None:
    waiting = KeptWaiting(("node02",))
    waiting.for_want_of(a_job("BadConstraints"), AT)
    assert waiting.for_want_of(a_job("None"), AT + LONG) == ()
    assert waiting.for_want_of(a_job("BadConstraints"), AT + LONG + timedelta(seconds=1)) == ("node02",)


@pytest.mark.parametrize("other", [a_job("Resources"), a_job("Priority"), a_job("None", JobState.RUNNING)])
def test_a_job_that_may_start_is_given_time_anew(other: JobRecord) -> None:
    waiting = KeptWaiting(("node02",))
    waiting.for_want_of(a_job("BadConstraints"), AT)
    waiting.for_want_of(other, AT + LONG / 2)
    assert waiting.for_want_of(a_job("BadConstraints"), AT + LONG) == ()


def test_where_nothing_of_it_is_ours_nothing_is_said() -> None:
    waiting = KeptWaiting(("node03",))
    waiting.for_want_of(a_job("BadConstraints"), AT)
    assert waiting.for_want_of(a_job("BadConstraints"), AT + LONG) == ()


async def test_the_watch_reports_it(job: JobUnderWatch, start: StartWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.kept_waiting.CANNOT_START_AFTER", timedelta(seconds=0.3))
    job.shows(JobState.PENDING, 1, reason="BadConstraints", excluded_nodes=("node02",), nodes=())
    await job.seen_by_the_poller()

    found = await start(job.order(1, kept_off=("node02",))).finding()

    assert isinstance(found, CannotStart)
    assert found.nodes == ("node02",)
