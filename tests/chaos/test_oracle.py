"""The oracle says nothing of a clean run, and finds each broken promise in records and events with that bug planted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from activities.scheduler.protocol import Hold, JobRecord, JobState
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Action, Advice, Disposition, JobKey, Mode, Reconciliation
from tests.chaos.kinds import JobKind
from tests.chaos.oracle import judge
from tests.chaos.records import Breach, Call, Held, JobHistory, Observed, Outage, Party, Verb

START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
JOB = JobKey(cluster="chaos", job_id="7", submitted_at=START)
USERS = ("node24",)
AVOIDED = ("node02", "node24")

Mutant = Callable[[JobHistory], JobHistory]


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def call(at_s: float, verb: Verb, *, ours: bool = True, received_s: float | None = None, **seen: object) -> Call:
    defaults: dict[str, object] = {"restart_count": 1, "state": JobState.PENDING, "hold": Hold.REQUEUED}
    received_at = after(at_s if received_s is None else received_s)
    return Call.model_validate(
        defaults
        | {"accepted": True}
        | seen
        | {"job_id": "7", "verb": verb, "ours": ours, "received_at": received_at, "at": after(at_s)}
    )


ADVICE = Advice(
    job=JOB,
    attempt=0,
    generation=1,
    action=Action.RESTART_EXCLUDE,
    exclude=("node02",),
    reason="xid 79 on node02",
    rule="hardware",
    advised_at=after(10),
    expires_at=after(610),
)
SEEN = Reconciliation(
    disposition=Disposition.CONVERGED,
    reason="desired_state_observed",
    observed_at=after(15),
    restart_count=1,
    excluded=AVOIDED,
)


def event(number: int, at_s: float, kind: AuditKind, **carries: object) -> AuditEvent:
    key = f"{JOB.workflow_id}@{int(START.timestamp())}/{number}"
    told = {"key": key, "at": after(at_s), "job": JOB, "attempt": 0, "kind": kind, "who": "policy", "summary": "told"}
    return AuditEvent.model_validate(told | {"mode": Mode.ACT} | carries)


def clean() -> JobHistory:
    """A job that failed once, was requeued without its culprit, and completed."""
    record = JobRecord(
        job_id="7", state=JobState.COMPLETED, restart_count=1, submitted_at=after(12), excluded_nodes=AVOIDED
    )
    calls = (
        call(12, Verb.REQUEUE),
        call(13, Verb.CONSTRAIN, exclude=AVOIDED),
        call(14, Verb.RELEASE, hold=Hold.NONE),
    )
    events = (
        event(1, 1, AuditKind.ADOPTED),
        event(2, 11, AuditKind.ORDERED, advice=ADVICE),
        event(3, 15, AuditKind.RECONCILED, advice=ADVICE, reconciliation=SEEN),
        event(4, 60, AuditKind.CLOSED),
    )
    return JobHistory(kind=JobKind.OWN_EXCLUSIONS, user_excluded=USERS, record=record, calls=calls, events=events)


def with_record(job: JobHistory, **changes: object) -> JobHistory:
    return job.model_copy(update={"record": job.record.model_copy(update=changes)})


def with_calls(job: JobHistory, *more: Call) -> JobHistory:
    return job.model_copy(update={"calls": (*job.calls, *more)})


def with_events(job: JobHistory, *events: AuditEvent) -> JobHistory:
    return job.model_copy(update={"events": events})


def without_event(job: JobHistory, kind: AuditKind) -> JobHistory:
    return with_events(job, *(told for told in job.events if told.kind is not kind))


def cancelled(job: JobHistory, *, received_s: float) -> JobHistory:
    """The owner cancels at 11.5 s, and our calls, received at that moment, take effect all the same."""
    word = call(11.5, Verb.CANCEL, ours=False, state=JobState.CANCELLED, hold=Hold.NONE, restart_count=0)
    received_at = after(received_s)
    ours = [call.model_copy(update={"received_at": received_at, "at": max(received_at, call.at)}) for call in job.calls]
    return job.model_copy(update={"calls": (word, *ours)})


def held_by_a_person(job: JobHistory) -> JobHistory:
    """A person holds the running job at 5 s."""
    word = call(5, Verb.HOLD, ours=False, state=JobState.RUNNING, hold=Hold.USER, restart_count=0)
    return job.model_copy(update={"calls": (word, *job.calls)})


def left_alone(job: JobHistory) -> JobHistory:
    return job.model_copy(update={"calls": (), "events": (), "kind": JobKind.NOT_OPTED_IN})


def of_kind(job: JobHistory, kind: JobKind) -> JobHistory:
    return job.model_copy(update={"kind": kind})


def held_for(job: JobHistory, seconds: float) -> JobHistory:
    held = Held(job_id="7", restart_count=1, since=after(12), until=after(12 + seconds))
    return job.model_copy(update={"holds": (held,)})


def released_by_the_watchdog(job: JobHistory, *kinds: AuditKind) -> JobHistory:
    told = [
        event(1, 42, kind).model_copy(update={"key": f"watchdog/{ADVICE.key}/1/{kind.value}", "who": "watchdog"})
        for kind in kinds
    ]
    return job.model_copy(update={"of_watchdog": tuple(told)})


def seen_as(job: JobHistory, **changes: object) -> JobHistory:
    seen = SEEN.model_copy(update=changes)
    return with_events(
        job,
        *(
            told.model_copy(update={"reconciliation": seen}) if told.kind is AuditKind.RECONCILED else told
            for told in job.events
        ),
    )


def stopped(job: JobHistory) -> JobHistory:
    """The advice was to stop, said to be done; the job restarted."""
    advice = ADVICE.model_copy(update={"action": Action.STOP})
    return with_events(
        job, *(told.model_copy(update={"advice": advice}) if told.advice else told for told in job.events)
    )


MUTANTS: dict[str, tuple[Breach, Mutant]] = {
    "a second requeue of the same attempt": (
        Breach.REQUEUED_TWICE,
        lambda job: with_record(with_calls(job, call(30, Verb.REQUEUE)), restart_count=2),
    ),
    "a late requeue hits the next attempt": (
        Breach.REQUEUED_TWICE,
        lambda job: with_record(with_calls(job, call(30, Verb.REQUEUE, restart_count=2)), restart_count=2),
    ),
    "a restart that nobody ordered": (Breach.REQUEUED_TWICE, lambda job: with_record(job, restart_count=2)),
    "held for ever": (
        Breach.LEFT_HELD,
        lambda job: with_record(job, state=JobState.PENDING, hold=Hold.REQUEUED),
    ),
    "held for longer than the watchdog allows": (Breach.LEFT_HELD, lambda job: held_for(job, 80)),
    "acted before the order was on record": (
        Breach.NO_INTENT,
        lambda job: with_events(job, *(e.model_copy(update={"at": after(12.5)}) for e in job.events)),
    ),
    "acted without any order": (
        Breach.NO_INTENT,
        lambda job: with_events(job, event(1, 1, AuditKind.ADOPTED), event(2, 60, AuditKind.CLOSED)),
    ),
    "an outcome of no order": (
        Breach.NO_INTENT,
        lambda job: with_events(job, *(e for e in job.events if e.kind is not AuditKind.ORDERED)),
    ),
    "the watchdog says nothing before it releases": (
        Breach.NO_INTENT,
        lambda job: released_by_the_watchdog(job, AuditKind.ACTED, AuditKind.RECONCILED),
    ),
    "ordered twice": (
        Breach.NO_INTENT,
        lambda job: with_events(job, *job.events[:3], event(4, 16, AuditKind.ORDERED, advice=ADVICE), *job.events[3:]),
    ),
    "an event in the middle is lost": (Breach.LOST_EVENT, lambda job: without_event(job, AuditKind.ADOPTED)),
    "the last event is lost": (Breach.LOST_EVENT, lambda job: without_event(job, AuditKind.CLOSED)),
    "all events are lost": (Breach.LOST_EVENT, lambda job: with_events(job)),
    "no outcome of an order": (Breach.LOST_EVENT, lambda job: without_event(job, AuditKind.RECONCILED)),
    "the user's exclusion is overwritten": (
        Breach.EXCLUSIONS_LOST,
        lambda job: with_record(job, excluded_nodes=("node02",)),
    ),
    "the user's exclusion is gone for a moment": (
        Breach.EXCLUSIONS_LOST,
        lambda job: with_calls(
            job, call(13.5, Verb.CONSTRAIN, exclude=()), call(13.8, Verb.CONSTRAIN, exclude=AVOIDED)
        ),
    ),
    "a cancelled job is requeued": (Breach.TOUCHED, lambda job: cancelled(job, received_s=19)),
    "a person's hold is undone": (Breach.TOUCHED, held_by_a_person),
    "a job without opt-in is called": (
        Breach.TOUCHED,
        lambda job: with_calls(left_alone(job), call(12, Verb.CONSTRAIN)),
    ),
    "a job that is only observed is restarted": (Breach.TOUCHED, lambda job: of_kind(job, JobKind.OBSERVED)),
    "a job that must not be requeued is": (Breach.TOUCHED, lambda job: of_kind(job, JobKind.NO_REQUEUE)),
    "a healthy job is restarted": (Breach.GROUNDLESS, lambda job: of_kind(job, JobKind.HEALTHY)),
    "a job is restarted for ever": (
        Breach.ENDLESS,
        lambda job: with_calls(job, *(call(30 + n, Verb.REQUEUE, restart_count=2 + n) for n in range(8))),
    ),
    "a job without opt-in has a trail": (
        Breach.TOUCHED,
        lambda job: with_events(left_alone(job), event(1, 1, AuditKind.ADOPTED)),
    ),
    "a cancelled job ends as another": (
        Breach.TOUCHED,
        lambda job: job.model_copy(
            update={"calls": (call(11.5, Verb.CANCEL, ours=False, state=JobState.CANCELLED, hold=Hold.NONE),)}
        ),
    ),
    "a restart is recorded that did not happen": (Breach.UNTRUE, lambda job: with_record(job, restart_count=0)),
    "exclusions are recorded that are not there": (
        Breach.UNTRUE,
        lambda job: seen_as(job, excluded=("node03", *USERS)),
    ),
    "a stop is recorded and the job went on": (Breach.UNTRUE, stopped),
    "the job does not come to its end": (
        Breach.UNFINISHED,
        lambda job: job.model_copy(update={"settled": False}),
    ),
}


def breaches(job: JobHistory, *outages: Outage) -> set[Breach]:
    observed = Observed(jobs=(job,), outages=outages, may_be_held_for=timedelta(seconds=60))
    return {violation.breach for violation in judge(observed)}


def test_nothing_is_said_of_a_clean_recovery() -> None:
    assert judge(Observed(jobs=(clean(),))) == ()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    breach, mutant = MUTANTS[name]
    assert breach in breaches(mutant(clean()))


def test_a_history_that_does_not_replay_is_found() -> None:
    found = judge(Observed(jobs=(clean(),), replay_failures={"recovery/chaos/7": "nondeterminism"}))
    assert [violation.breach for violation in found] == [Breach.REPLAY]


def test_a_call_that_was_under_way_when_the_owner_cancelled_is_not_held_against_anybody() -> None:
    assert breaches(cancelled(clean(), received_s=11.4)) == set()


def test_a_job_left_alone_has_nothing_broken() -> None:
    job = with_record(left_alone(clean()), restart_count=0, excluded_nodes=USERS, state=JobState.FAILED)
    assert breaches(job) == set()


def test_what_slurm_requeued_by_itself_is_not_ours() -> None:
    job = with_record(clean(), restart_count=2)
    assert breaches(with_calls(job, call(30, Verb.NODE_FAILURE, ours=False, restart_count=2))) == set()


def test_a_job_that_completed_before_anybody_looked_owes_no_trail() -> None:
    job = with_record(clean(), restart_count=0, excluded_nodes=USERS)
    job = job.model_copy(update={"calls": (), "events": (), "guarded": False})
    assert breaches(job) == set()
    assert breaches(with_record(job, state=JobState.FAILED)) == {Breach.LOST_EVENT}


def test_a_job_stays_under_guard_while_a_person_holds_it() -> None:
    job = of_kind(with_events(clean(), *clean().events[:-1]), JobKind.HELD_TWICE)
    assert breaches(with_record(job, state=JobState.PENDING, hold=Hold.ADMIN)) == set()


def test_the_watchdog_need_not_release_while_it_or_the_scheduler_is_out_of_order() -> None:
    job = held_for(clean(), 80)
    for party in (Party.WATCHDOG, Party.SCHEDULER):
        assert breaches(job, Outage(party=party, since=after(20), until=after(45))) == set()
    assert breaches(job, Outage(party=Party.WORKER, since=after(20), until=after(45))) == {Breach.LEFT_HELD}


def test_a_release_by_the_watchdog_is_in_order_once_it_said_so() -> None:
    assert breaches(released_by_the_watchdog(clean(), AuditKind.ORDERED, AuditKind.ACTED)) == set()


def test_a_word_that_a_crash_of_the_controller_may_have_undone_is_not_held_against_anybody() -> None:
    job = cancelled(clean(), received_s=19)
    crash = Outage(party=Party.SCHEDULER, since=after(14), until=after(20))
    assert Breach.TOUCHED in breaches(job)
    assert Breach.TOUCHED not in breaches(job, crash)


def test_a_requeue_that_the_controller_forgot_is_none() -> None:
    forgotten = call(11.8, Verb.REQUEUE, forgotten=True)
    job = clean()
    assert breaches(job.model_copy(update={"calls": (forgotten, *job.calls)})) == set()
