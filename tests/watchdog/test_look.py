"""A look of the watchdog at a scheduler that answers, refuses, or says nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from activities.scheduler.marker import Account, read_marker
from activities.scheduler.protocol import (
    ClusterReading,
    Hold,
    JobRecord,
    JobUnknown,
    NodeRecord,
    NotPermitted,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.rounds import Outcome
from activities.scheduler.watchdog import Watchdog
from recovery.audit import AuditKind
from recovery.model import Disposition, Mode
from tests.protocol.parts import JOB, START
from tests.watchdog.parts import DEADLINE, Recorded, a_held_job, our_mark

CHANGES = ("release", "constrain")


class Records:
    """A scheduler of a few records; `failing` says what goes wrong at a verb."""

    def __init__(self, *jobs: JobRecord) -> None:
        self.held = {job.job_id: job for job in jobs}
        self.calls: list[str] = []
        self.failing: dict[str, SchedulerError] = {}
        self.lost: set[str] = set()
        """Verbs that are carried out and whose answer does not come."""
        self.deaf = False
        """Accepts a release and does nothing."""
        self.before: dict[str, Callable[[], None]] = {}

    def _call(self, verb: str, job_id: str = "") -> None:
        self.calls.append(f"{verb} {job_id}".strip())
        if meanwhile := self.before.pop(verb, None):
            meanwhile()
        for key in (verb, f"{verb} {job_id}"):
            if key in self.failing:
                raise self.failing[key]

    def change(self, job_id: str, **changes: Any) -> None:
        self.held[job_id] = self.held[job_id].model_copy(update=changes)

    async def jobs(self) -> ClusterReading:
        self._call("jobs")
        return ClusterReading(read_at=START, jobs=tuple(self.held.values()))

    async def job(self, job_id: str) -> JobRecord:
        self._call("job", job_id)
        if job_id not in self.held:
            raise JobUnknown(f"Invalid job id specified for job {job_id}")
        return self.held[job_id]

    async def nodes(self) -> tuple[NodeRecord, ...]:
        raise NotImplementedError

    async def requeue_hold(self, job_id: str) -> None:
        raise NotImplementedError

    async def requeue(self, job_id: str) -> None:
        raise NotImplementedError

    async def constrain(
        self, job_id: str, *, exclude: tuple[str, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        self._call("constrain", job_id)
        assert exclude is None, "exclusions are left as they are"
        self.change(job_id, admin_comment=admin_comment)

    async def release(self, job_id: str) -> None:
        self._call("release", job_id)
        if self.deaf:
            return
        self.change(job_id, hold=Hold.NONE)
        if "release" in self.lost:
            raise SchedulerUnavailable("Socket timed out on send/recv operation")

    async def start_now(self, job_id: str, *, admin_comment: str | None = None) -> None:
        raise NotImplementedError

    async def allow_requeue(self, job_id: str) -> None:
        raise NotImplementedError

    async def cancel(self, job_id: str) -> None:
        raise NotImplementedError

    @property
    def changes(self) -> list[str]:
        return [call for call in self.calls if call.startswith(CHANGES)]


class Clock:
    """Our clock, long after the deadline of a hold that began at `START`."""

    def __init__(self) -> None:
        self.s = DEADLINE.total_seconds() + 1

    def now(self) -> datetime:
        return START + timedelta(seconds=self.s)

    def monotonic(self) -> float:
        return self.s


def a_watchdog(
    scheduler: Records, recorded: Recorded, *, mode: Mode = Mode.ACT, clock: Clock | None = None
) -> Watchdog:
    clock = clock or Clock()
    return Watchdog(
        scheduler,
        recorded.record,
        cluster="alpha",
        mode=mode,
        deadline=DEADLINE,
        settle_s=0,
        clock=clock.now,
        monotonic=clock.monotonic,
    )


async def outcomes(watchdog: Watchdog) -> dict[str, Outcome]:
    return {seen.job_id: seen.outcome for seen in (await watchdog.look()).seen}


def other(job_id: str, **changes: Any) -> JobRecord:
    """Another held job of ours."""
    mark = our_mark(job=JOB.model_copy(update={"job_id": job_id}))
    return a_held_job(job_id=job_id, **{"admin_comment": mark} | changes)


async def test_an_overdue_hold_is_released_its_mark_replaced_and_all_of_it_on_record() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    recorded.at[AuditKind.ORDERED] = lambda: scheduler.calls.append("on record")
    assert await outcomes(a_watchdog(scheduler, recorded)) == {"1": Outcome.RELEASED}
    assert scheduler.calls == ["jobs", "on record", "job 1", "release 1", "job 1", "constrain 1"]
    marker = read_marker(scheduler.held["1"].admin_comment)
    assert isinstance(marker, Account)
    assert "released by the watchdog" in marker.why
    assert scheduler.held["1"].excluded_nodes == ("node01",)
    assert recorded.kinds == [AuditKind.ORDERED, AuditKind.ACTED, AuditKind.RECONCILED]
    assert {(event.who, event.job, event.attempt, event.mode) for event in recorded.events} == {
        ("watchdog", JOB, 0, Mode.ACT)
    }
    assert len({event.key for event in recorded.events}) == 3
    reconciliation = recorded.events[-1].reconciliation
    assert reconciliation is not None
    assert reconciliation.disposition is Disposition.CONVERGED


async def test_a_second_look_and_a_second_watchdog_find_nothing_to_do() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    watchdog = a_watchdog(scheduler, recorded)
    await watchdog.look()
    told, changed = len(recorded.events), len(scheduler.changes)
    assert await outcomes(watchdog) == {}
    assert await outcomes(a_watchdog(scheduler, recorded)) == {}
    assert (len(recorded.events), len(scheduler.changes)) == (told, changed)


async def test_observe_mode_says_what_it_would_release_once_and_touches_nothing() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    watchdog = a_watchdog(scheduler, recorded, mode=Mode.OBSERVE)
    for _ in range(3):
        assert await outcomes(watchdog) == {"1": Outcome.WOULD_RELEASE}
    assert scheduler.calls == ["jobs"] * 3
    assert recorded.kinds == [AuditKind.ADVISED]
    assert recorded.events[0].mode is Mode.OBSERVE


async def test_a_silent_scheduler_leads_to_nothing_and_is_said_once() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.failing["jobs"] = SchedulerUnavailable("Unable to contact slurm controller")
    watchdog = a_watchdog(scheduler, recorded)
    with capture_logs() as logs:
        looks = [await watchdog.look() for _ in range(3)]
    assert len(logs) == 1
    assert all(look.silence == "Unable to contact slurm controller" and not look.seen for look in looks)
    assert not scheduler.changes
    assert not recorded.events
    scheduler.failing.clear()
    assert await outcomes(watchdog) == {"1": Outcome.RELEASED}


async def test_a_person_who_holds_the_job_between_our_reads_wins() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.before["job"] = lambda: scheduler.change("1", hold=Hold.ADMIN)
    assert await outcomes(a_watchdog(scheduler, recorded)) == {"1": Outcome.LEFT}
    assert not scheduler.changes


async def test_an_act_that_released_the_job_between_our_reads_leaves_nothing_to_do() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.before["job"] = lambda: scheduler.change("1", hold=Hold.NONE)
    assert await outcomes(a_watchdog(scheduler, recorded)) == {"1": Outcome.LEFT}
    assert not scheduler.changes


@pytest.mark.parametrize("error", [NotPermitted("Access denied"), SchedulerUnavailable("silent"), JobUnknown("gone")])
async def test_one_bad_job_does_not_keep_the_others(error: SchedulerError) -> None:
    scheduler, recorded = Records(*(other(str(number)) for number in range(1, 21))), Recorded()
    scheduler.failing["release 3"] = error
    found = await outcomes(a_watchdog(scheduler, recorded))
    assert found.pop("3") is Outcome.FAILED
    assert set(found.values()) == {Outcome.RELEASED}
    assert len(found) == 19


async def test_a_fault_of_our_own_at_one_job_does_not_keep_the_others() -> None:
    scheduler, recorded = Records(other("1"), other("2")), Recorded()

    def at_fault() -> None:
        recorded.at.clear()
        raise ZeroDivisionError

    recorded.at[AuditKind.ORDERED] = at_fault
    assert await outcomes(a_watchdog(scheduler, recorded)) == {"1": Outcome.FAILED, "2": Outcome.RELEASED}


async def test_a_refused_release_is_tried_again_and_told_once() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.failing["release"] = SchedulerUnavailable("Socket timed out")
    watchdog = a_watchdog(scheduler, recorded)
    assert [await outcomes(watchdog) for _ in range(2)] == [{"1": Outcome.FAILED}] * 2
    scheduler.failing.clear()
    assert await outcomes(watchdog) == {"1": Outcome.RELEASED}
    assert recorded.kinds == [AuditKind.ORDERED, AuditKind.ACTED, AuditKind.RECONCILED]


async def test_a_release_whose_answer_was_lost_is_settled_by_the_next_look() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.lost.add("release")
    watchdog = a_watchdog(scheduler, recorded)
    assert await outcomes(watchdog) == {"1": Outcome.FAILED}
    await watchdog.look()
    assert scheduler.changes == ["release 1", "constrain 1"]
    assert recorded.kinds == [AuditKind.ORDERED, AuditKind.RECONCILED]
    assert isinstance(read_marker(scheduler.held["1"].admin_comment), Account)


async def test_a_job_that_vanishes_after_a_lost_answer_is_on_record_as_gone() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.lost.add("release")
    watchdog = a_watchdog(scheduler, recorded)
    await watchdog.look()
    scheduler.held.clear()
    await watchdog.look()
    reconciliation = recorded.events[-1].reconciliation
    assert reconciliation is not None
    assert reconciliation.reason == "job_gone"


async def test_a_hold_that_a_restored_controller_brings_back_is_released_again_at_once() -> None:
    scheduler, recorded, clock = Records(a_held_job()), Recorded(), Clock()
    before = scheduler.held["1"]
    watchdog = a_watchdog(scheduler, recorded, clock=clock)
    assert await outcomes(watchdog) == {"1": Outcome.RELEASED}
    clock.s += 30
    assert await outcomes(watchdog) == {}
    clock.s += 30
    scheduler.held["1"] = before
    assert await outcomes(watchdog) == {"1": Outcome.RELEASED}


async def test_a_later_hold_of_the_same_job_settles_the_earlier_one_and_keeps_its_own_mark() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.lost.add("release")
    watchdog = a_watchdog(scheduler, recorded)
    await watchdog.look()
    scheduler.change("1", hold=Hold.REQUEUED, restart_count=2, admin_comment=our_mark(attempt=1, generation=2))
    newer = scheduler.held["1"]
    assert await outcomes(watchdog) == {"1": Outcome.LEFT}
    assert scheduler.held["1"] == newer
    assert recorded.kinds == [AuditKind.ORDERED, AuditKind.RECONCILED]


async def test_a_release_that_was_accepted_and_had_no_effect_is_not_told_as_done() -> None:
    scheduler, recorded = Records(a_held_job()), Recorded()
    scheduler.deaf = True
    watchdog = a_watchdog(scheduler, recorded)
    assert await outcomes(watchdog) == {"1": Outcome.FAILED}
    assert AuditKind.RECONCILED not in recorded.kinds
    assert scheduler.changes == ["release 1"]
    scheduler.deaf = False
    assert await outcomes(watchdog) == {"1": Outcome.RELEASED}
