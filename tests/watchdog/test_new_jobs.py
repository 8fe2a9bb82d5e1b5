"""A look of the watchdog at jobs that were submitted anew and wait for their release."""

from __future__ import annotations

from activities.scheduler.marker import Account, Marker, PassedOver, read_marker
from activities.scheduler.protocol import Hold, JobRecord, JobState, SchedulerUnavailable
from activities.scheduler.resubmission import ResubmitOrder, Sight, Step, next_step
from activities.scheduler.rounds import Outcome
from activities.scheduler.watchdog import ANEW_A_ROUND
from recovery.audit import AuditKind
from recovery.model import Disposition, JobKey, Mode, Reconciliation
from recovery.optin import OptIn
from tests.protocol.parts import START, an_advice
from tests.watchdog.parts import DEADLINE, Recorded, a_lineage, a_new_job, an_old_job
from tests.watchdog.test_look import Clock, Records, a_watchdog, outcomes

ORDER = ResubmitOrder(advice=an_advice(), job=an_old_job(), optin=OptIn(mode=Mode.ACT), count=1, ordered_at=START)


DUE_S = 80.0
"""After `START`: past the deadline of a job that came 11 s after it."""


def what_the_act_does(scheduler: Records, new: str = "7") -> Step | Reconciliation:
    """Its next step, where it comes back at last."""
    sight = Sight(scheduler.held.get("1"), (scheduler.held[new],))
    return next_step(sight, ORDER, START, sent_at=START, ended_by_us=False)


def a_clock_at(seconds: float) -> Clock:
    clock = Clock()
    clock.s = seconds
    return clock


async def test_a_new_job_is_marked_at_once_released_at_its_deadline_and_accounted_for() -> None:
    scheduler, recorded, clock = Records(an_old_job(), a_new_job()), Recorded(), a_clock_at(12)
    watchdog = a_watchdog(scheduler, recorded, clock=clock)
    assert await outcomes(watchdog) == {"7": Outcome.LEFT}
    assert isinstance(read_marker(scheduler.held["7"].admin_comment), Marker)
    assert recorded.events == []

    clock.s += DEADLINE.total_seconds()
    scheduler.calls.clear()
    recorded.at[AuditKind.ORDERED] = lambda: scheduler.calls.append("on record")
    assert await outcomes(watchdog) == {"7": Outcome.RELEASED}
    assert scheduler.calls == ["jobs", "on record", "jobs", "release 7", "job 7", "constrain 7"]
    account = read_marker(scheduler.held["7"].admin_comment)
    assert isinstance(account, Account)
    assert account.did == an_advice().key
    assert recorded.kinds == [AuditKind.ORDERED, AuditKind.ACTED, AuditKind.RECONCILED]
    assert {event.job for event in recorded.events} == {
        JobKey(cluster="alpha", job_id="7", submitted_at=a_new_job().submitted_at)
    }
    assert await outcomes(watchdog) == {}
    after = what_the_act_does(scheduler)
    assert isinstance(after, Reconciliation)
    assert (after.disposition, after.resubmitted_as) == (Disposition.CONVERGED, "7")


async def test_a_watchdog_that_comes_late_finishes_what_was_marked_though_the_old_job_is_forgotten() -> None:
    new = a_new_job(lineage=a_lineage(first=False, old_is_over=False))
    scheduler, recorded = Records(an_old_job(), new), Recorded()
    clock = a_clock_at(-30)
    watchdog = a_watchdog(scheduler, recorded, clock=clock)
    del scheduler.held["7"]
    await watchdog.look()
    scheduler.held["7"], clock.s = new, 15
    await watchdog.look()
    del scheduler.held["1"]
    assert await outcomes(a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))) == {"7": Outcome.RELEASED}


async def test_what_nobody_can_tell_any_more_stays_held_and_is_said_once() -> None:
    scheduler, recorded = Records(a_new_job(lineage=a_lineage(old_is_over=False))), Recorded()
    watchdog = a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))
    for _ in range(3):
        assert await outcomes(watchdog) == {"7": Outcome.LEFT}
    assert not scheduler.changes
    assert recorded.kinds == [AuditKind.WARNED]
    assert recorded.events[0].summary.startswith("the job stays held: how job 1 ended can't be told any more")


async def test_an_owners_cancel_wins_also_once_the_scheduler_has_forgotten_it() -> None:
    old = an_old_job(state=JobState.CANCELLED, ended_at=START)
    scheduler, recorded, clock = Records(old, a_new_job()), Recorded(), a_clock_at(12)
    watchdog = a_watchdog(scheduler, recorded, clock=clock)
    await watchdog.look()
    assert recorded.kinds == [AuditKind.WARNED]
    assert "was cancelled, and not by relight" in recorded.events[0].summary
    assert isinstance(read_marker(scheduler.held["7"].admin_comment), PassedOver)
    assert what_the_act_does(scheduler) is Step.CANCEL_NEW

    del scheduler.held["1"]
    clock.s += 10 * DEADLINE.total_seconds()
    assert await outcomes(watchdog) == {}
    assert scheduler.held["7"].hold is Hold.USER
    after = what_the_act_does(scheduler)
    assert isinstance(after, Reconciliation)
    assert (after.disposition, after.reason) == (Disposition.ABANDONED, "not_submitted")
    assert recorded.kinds == [AuditKind.WARNED]


async def test_the_newer_of_two_is_passed_over_before_the_older_can_be_forgotten() -> None:
    scheduler, recorded, clock = Records(an_old_job(), a_new_job("7"), a_new_job("9")), Recorded(), a_clock_at(12)
    watchdog = a_watchdog(scheduler, recorded, clock=clock)
    await watchdog.look()
    clock.s += DEADLINE.total_seconds()
    assert (await outcomes(watchdog))["7"] is Outcome.RELEASED
    del scheduler.held["7"]
    clock.s += 10 * DEADLINE.total_seconds()
    assert await outcomes(a_watchdog(scheduler, recorded, clock=clock)) == {}
    assert scheduler.held["9"].hold is Hold.USER


async def test_an_act_that_releases_the_job_while_it_is_being_marked_leaves_an_account() -> None:
    scheduler, recorded = Records(an_old_job(), a_new_job()), Recorded()
    scheduler.before["constrain"] = lambda: scheduler.change("7", hold=Hold.NONE)
    await a_watchdog(scheduler, recorded, clock=a_clock_at(12)).look()
    assert isinstance(read_marker(scheduler.held["7"].admin_comment), Account)


async def test_what_an_act_released_and_could_not_account_for_is_accounted_for() -> None:
    scheduler, recorded = Records(a_new_job(hold=Hold.NONE)), Recorded()
    assert await outcomes(a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))) == {}
    assert scheduler.changes == ["constrain 7"]
    scheduler.change("7", hold=Hold.USER)
    assert await outcomes(a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))) == {}, (
        "who holds it now is a person"
    )


async def test_a_person_who_comes_between_the_reads_wins() -> None:
    scheduler, recorded = Records(an_old_job(), a_new_job()), Recorded()
    recorded.at[AuditKind.ORDERED] = lambda: scheduler.change("7", hold=Hold.ADMIN)
    assert await outcomes(a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))) == {"7": Outcome.LEFT}
    assert "release 7" not in scheduler.calls


async def test_observe_mode_says_what_it_would_release_and_touches_nothing() -> None:
    scheduler, recorded = Records(an_old_job(), a_new_job("7"), a_new_job("9")), Recorded()
    watchdog = a_watchdog(scheduler, recorded, mode=Mode.OBSERVE, clock=a_clock_at(DUE_S))
    for _ in range(2):
        assert await outcomes(watchdog) == {"7": Outcome.WOULD_RELEASE, "9": Outcome.LEFT}
    assert scheduler.calls == ["jobs"] * 2
    assert sorted(recorded.kinds) == [AuditKind.ADVISED, AuditKind.WARNED]


async def test_a_release_whose_answer_was_lost_is_settled_by_the_next_look() -> None:
    scheduler, recorded = Records(an_old_job(), a_new_job()), Recorded()
    scheduler.lost.add("release")
    watchdog = a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))
    assert await outcomes(watchdog) == {"7": Outcome.FAILED}
    await watchdog.look()
    assert scheduler.calls.count("release 7") == 1
    assert recorded.kinds == [AuditKind.ORDERED, AuditKind.RECONCILED]
    assert isinstance(read_marker(scheduler.held["7"].admin_comment), Account)


async def test_a_mark_that_is_refused_is_set_by_a_later_look() -> None:
    scheduler, recorded, clock = Records(an_old_job(), a_new_job()), Recorded(), a_clock_at(12)
    scheduler.failing["constrain"] = SchedulerUnavailable("Socket timed out")
    watchdog = a_watchdog(scheduler, recorded, clock=clock)
    await watchdog.look()
    scheduler.failing.clear()
    await watchdog.look()
    assert isinstance(read_marker(scheduler.held["7"].admin_comment), Marker)


async def test_a_flood_of_such_jobs_is_released_little_by_little_and_keeps_no_other_hold() -> None:
    def forged(number: int) -> JobRecord:
        job = JobKey(cluster="alpha", job_id=str(number), submitted_at=START)
        lineage = a_lineage(order=an_advice(job=job).key, of=str(number))
        return a_new_job(str(1_000 + number), lineage=lineage, user="eve")

    scheduler, recorded = Records(*map(forged, range(1, ANEW_A_ROUND + 21))), Recorded()
    watchdog = a_watchdog(scheduler, recorded, clock=a_clock_at(DUE_S))
    found = await outcomes(watchdog)
    assert list(found.values()).count(Outcome.RELEASED) == ANEW_A_ROUND
    assert list((await outcomes(watchdog)).values()) == [Outcome.RELEASED] * 20
