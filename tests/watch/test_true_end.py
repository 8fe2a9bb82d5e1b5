"""What became of a job that left the scheduler's memory, by accounting's word."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.findings import Ended, Gone
from activities.scheduler.protocol import JobFlag, JobState, SchedulerUnavailable
from activities.scheduler.site import AccountedAttempt
from activities.true_end import last_of
from tests.watch.conftest import StartWatch
from tests.watch.scripted import JOB_ID, JobUnderWatch, submitted_at


class Accounts:
    """Accounting as a test has it."""

    def __init__(self, *attempts: AccountedAttempt, silent: bool = False) -> None:
        self._attempts = attempts
        self._silent = silent

    async def accounting(self, job_id: str) -> tuple[AccountedAttempt, ...]:
        assert job_id == JOB_ID
        if self._silent:
            raise SchedulerUnavailable("slurmdbd does not answer")
        return self._attempts


def attempt(state: JobState, index: int = 0, **fields: Any) -> AccountedAttempt:
    return AccountedAttempt(job_id=JOB_ID, state=state, submitted_at=submitted_at(index), **fields)


REQUEUED = frozenset({JobFlag.REQUEUED})


async def forgotten(job: JobUnderWatch) -> None:
    job.scheduler.listed.clear()
    await job.seen_by_the_poller()


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.NODE_FAIL])
async def test_a_forgotten_job_ends_as_accounting_tells(job: JobUnderWatch, start: StartWatch, state: JobState) -> None:
    ended_at = submitted_at(0) + timedelta(hours=3)
    watch = start(accounts=Accounts(attempt(state, exit_code=3, ended_at=ended_at)))
    assert await watch.silent_for(0.2)
    stdout = job.record.stdout
    await forgotten(job)

    ended = await watch.finding()

    assert isinstance(ended, Ended)
    assert (ended.record.state, ended.record.exit_code, ended.record.ended_at) == (state, 3, ended_at)
    assert ended.record.stdout == stdout, "what the scheduler told before is kept"


async def test_whoever_cancelled_it_is_told_from_accounting_too(job: JobUnderWatch, start: StartWatch) -> None:
    await forgotten(job)

    ended = await start(accounts=Accounts(attempt(JobState.CANCELLED, cancelled_by="1000"))).finding()

    assert isinstance(ended, Ended)
    assert ended.record.cancelled_by == "1000"


async def test_an_end_that_was_reported_before_is_told_with_the_farewell(job: JobUnderWatch, start: StartWatch) -> None:
    await forgotten(job)
    order = job.order().model_copy(update={"ended": True})

    gone = await start(order, accounts=Accounts(attempt(JobState.FAILED, exit_code=3))).finding()

    assert isinstance(gone, Gone)
    assert "ended as FAILED (exit code 3)" in gone.detail


@pytest.mark.parametrize(
    "accounts",
    [
        Accounts(silent=True),
        Accounts(),
        Accounts(attempt(JobState.FAILED, 9)),
        Accounts(attempt(JobState.RUNNING)),
    ],
    ids=["no answer", "not known", "another job", "still running"],
)
async def test_what_accounting_does_not_tell_stays_unknown(
    job: JobUnderWatch, start: StartWatch, accounts: Accounts
) -> None:
    await forgotten(job)

    assert isinstance(await start(accounts=accounts).finding(), Gone)


def test_a_job_that_was_requeued_unseen_ends_as_its_last_attempt_did(job: JobUnderWatch) -> None:
    attempts = (
        attempt(JobState.UNKNOWN, 0, flags=REQUEUED),
        attempt(JobState.UNKNOWN, 1, flags=REQUEUED),
        attempt(JobState.COMPLETED, 2),
    )

    assert last_of(attempts, job.order()) == attempts[2]


def test_what_comes_after_the_end_is_another_job_of_the_same_id(job: JobUnderWatch) -> None:
    attempts = (attempt(JobState.COMPLETED, 0), attempt(JobState.FAILED, 1))

    assert last_of(attempts, job.order()) == attempts[0]


def test_an_attempt_that_accounting_never_saw_end_does_not_end_as_a_later_job(job: JobUnderWatch) -> None:
    assert last_of((attempt(JobState.RUNNING, 0), attempt(JobState.FAILED, 1)), job.order()) is None
