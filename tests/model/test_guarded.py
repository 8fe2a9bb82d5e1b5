"""The act with the watchdog beside it: nothing waits for relight beyond the deadline, and mutants are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest

from activities.scheduler import overdue, requeue, rounds, watchdog
from activities.scheduler.marker import Marker
from activities.scheduler.overdue import OurHold, Release
from activities.scheduler.protocol import Hold, JobRecord
from activities.scheduler.watchdog import Watchdog
from recovery.model import JobKey
from tests.model.guarded import play_guarded
from tests.protocol.parts import START

RUNS = 80
RUNS_OF_A_MUTANT = 3_000
"""At most: each is caught in far fewer."""


@pytest.fixture(autouse=True)
def no_pause_of_this_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only clock here is the machine's, so that a run can be repeated."""
    monkeypatch.setattr(requeue, "STALE_AFTER_S", math.inf)


def test_whatever_happens_no_job_waits_for_us_beyond_the_deadline() -> None:
    play_many(RUNS)


def releases_whatever_is_marked_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watchdog, "decide", lambda hold, held_for, _: overdue.decide(hold, held_for, timedelta()))


def never_releases(patch: pytest.MonkeyPatch) -> None:
    async def release(self: Watchdog, decision: Release) -> rounds.Seen:
        return self._of(decision, rounds.Outcome.RELEASED, "surely")

    patch.setattr(Watchdog, "_release", release)


def takes_any_requeued_hold_for_ours(patch: pytest.MonkeyPatch) -> None:
    def our_hold(record: JobRecord) -> OurHold | overdue.Leave:
        if record.hold is not Hold.REQUEUED or record.state.ended or record.flags:
            return overdue.Leave(reason="not held by a requeue")
        job = JobKey(cluster="alpha", job_id=record.job_id, submitted_at=START)
        return OurHold(
            job=job,
            attempt=0,
            restart_count=record.restart_count,
            kind=Hold.REQUEUED,
            advice_key="any",
            since=record.submitted_at,
            why="",
        )

    patch.setattr(overdue, "our_hold", our_hold)
    patch.setattr(watchdog, "our_hold", our_hold)
    patch.setattr(watchdog, "read_marker", lambda comment: Marker(holds="any", since=START))


def releases_a_persons_hold_upon_ours(patch: pytest.MonkeyPatch) -> None:
    real = overdue.our_hold
    persons = (Hold.USER, Hold.ADMIN)

    def our_hold(record: JobRecord) -> OurHold | overdue.Leave:
        return real(record.model_copy(update={"hold": Hold.REQUEUED}) if record.hold in persons else record)

    patch.setattr(overdue, "our_hold", our_hold)
    patch.setattr(watchdog, "our_hold", our_hold)


def begins_anew_after_each_restart(patch: pytest.MonkeyPatch) -> None:
    """It believes neither the mark nor the controller: a watchdog that dies often never releases anything."""
    patch.setattr(overdue.Sightings, "_age", lambda self, hold, now, monotonic_s: timedelta())
    patch.setattr(Watchdog, "__init__", dies_often(Watchdog.__init__))


def dies_often(real: Callable[..., None]) -> Callable[..., None]:
    def init(self: Watchdog, *arguments: object, **more: object) -> None:
        real(self, *arguments, **more)
        look = self.look

        async def look_and_forget() -> rounds.Round:
            self._sightings = overdue.Sightings()
            return await look()

        self.look = look_and_forget  # type: ignore[method-assign]

    return init


@pytest.mark.parametrize(
    "mutant",
    [
        releases_whatever_is_marked_at_once,
        never_releases,
        takes_any_requeued_hold_for_ours,
        releases_a_persons_hold_upon_ours,
        begins_anew_after_each_restart,
    ],
    ids=lambda case: case.__name__,
)
def test_the_machine_catches_a_watchdog_that(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play_many(RUNS_OF_A_MUTANT)


def play_many(runs: int) -> None:
    for seed in range(runs):
        play_guarded(seed)
