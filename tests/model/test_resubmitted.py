"""Resubmissions with the watchdog beside the act: exactly one job runs, and mutants are caught."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from activities.scheduler import resubmit, unreleased, watchdog
from activities.scheduler.lineage import Lineage
from activities.scheduler.protocol import Hold
from activities.scheduler.resubmission import Sight
from activities.scheduler.unreleased import Unreleased
from tests.model.resubmitted import play_resubmitted

RUNS = 60
RUNS_OF_A_MUTANT = 3_000
"""At most: each is caught in far fewer."""

Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """Thousands of runs would fill the memory with what they say."""
    with capture_logs():
        logging.disable(logging.WARNING)
        yield
    logging.disable(logging.NOTSET)


def test_whatever_happens_one_job_runs_for_an_order_and_none_waits_beyond_the_deadline() -> None:
    play_many(RUNS)


def never_releases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watchdog, "find_unreleased", lambda *_: Unreleased({}, [], []))


def releases_whatever_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unreleased, "_why_never", lambda *_: "")
    patch.setattr(unreleased, "_why_not_now", lambda *_: "")


def releases_what_came_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lineage, "is_prompt", lambda *_: True)


def does_not_hear_who_cancelled_the_old_job(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unreleased, "overtaken_by", lambda *_: "")


def takes_what_is_forgotten_for_ended_well(patch: pytest.MonkeyPatch) -> None:
    real = unreleased.read_lineage

    def read_lineage(comment: str) -> Lineage | None:
        lineage = real(comment)
        return lineage and lineage.model_copy(update={"old_is_over": True})

    patch.setattr(unreleased, "read_lineage", read_lineage)


def cancels_the_old_job_unmarked(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return

    patch.setattr(resubmit.Resubmitter, "_mark", nothing)
    real = resubmit.next_step

    def next_step(sight: Sight, *rest: Any, **more: Any) -> Any:
        step = real(sight, *rest, **more)
        return resubmit.Step.CANCEL_OLD if step is resubmit.Step.MARK_OLD else step

    patch.setattr(resubmit, "next_step", next_step)


def takes_an_administrators_hold_for_its_own(patch: pytest.MonkeyPatch) -> None:
    real = unreleased.find_unreleased

    def find_unreleased(jobs: Any, *rest: Any) -> Unreleased:
        meant = (job.model_copy(update={"hold": Hold.USER}) if job.hold is Hold.ADMIN else job for job in jobs)
        return real(meant, *rest)

    patch.setattr(watchdog, "find_unreleased", find_unreleased)


@pytest.mark.parametrize(
    "mutant",
    [
        never_releases,
        releases_whatever_is_held,
        releases_what_came_too_late,
        does_not_hear_who_cancelled_the_old_job,
        takes_what_is_forgotten_for_ended_well,
        cancels_the_old_job_unmarked,
        takes_an_administrators_hold_for_its_own,
    ],
    ids=lambda case: case.__name__,
)
def test_the_model_catches_relight_that(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play_many(RUNS_OF_A_MUTANT)


def play_many(runs: int) -> None:
    for seed in range(runs):
        play_resubmitted(seed)
