"""Says of one run which promises were broken. Pure: it reads records and events, and never asks anybody."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta

from activities.scheduler.protocol import Hold, JobState
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Action, Disposition
from tests.chaos.kinds import JobKind
from tests.chaos.records import Breach, Call, JobHistory, Observed, Party, Verb, Violation

SLACK = timedelta(seconds=10)
"""Between two readings, until the attempt before has ended, until a release can be read."""
SAVED_EVERY = timedelta(seconds=6)
"""What was said so shortly before the controller crashed may be forgotten."""
MAX_RESTARTS = {JobKind.HEALTHY: 0, JobKind.CANCELLED: 0, JobKind.REQUEUED: 0}
"""Nothing of its own ever fails in these."""
MANY_RESTARTS = 6


def judge(observed: Observed) -> tuple[Violation, ...]:
    """Return every broken promise of a run."""
    rules = (requeued_twice, without_intent, lost_events, exclusions_lost, groundless, untrue, unfinished)
    broken = [violation for job in observed.jobs for rule in rules for violation in rule(job)]
    broken += [violation for job in observed.jobs for rule in (left_held, touched) for violation in rule(job, observed)]
    broken += [
        Violation(breach=Breach.REPLAY, subject=workflow_id, detail=failure)
        for workflow_id, failure in observed.replay_failures.items()
    ]
    return tuple(broken)


def requeued_twice(job: JobHistory) -> Iterator[Violation]:
    """Each attempt is requeued by us once at most, and only when its own advice was ordered; and the scheduler's count
    of restarts has no other source than the calls in its records."""
    attempts = Counter(call.restart_count - 1 for call in _accepted(job.our_calls, Verb.REQUEUE))
    ordered = {
        event.advice.attempt for event in _told(job, AuditKind.ORDERED) if event.advice and event.advice.restarts
    }
    for attempt, times in attempts.items():
        if times > 1 or (ordered and attempt not in ordered):
            detail = f"attempt {attempt} was requeued {times} times; ordered for attempts {sorted(ordered)}"
            yield _violation(Breach.REQUEUED_TWICE, job, detail)
    known = len(_accepted(job.calls, Verb.REQUEUE, Verb.NODE_FAILURE))
    if job.record.restart_count > known:
        detail = f"restarted {job.record.restart_count} times, of which the records explain {known}"
        yield _violation(Breach.REQUEUED_TWICE, job, detail)


def left_held(job: JobHistory, observed: Observed) -> Iterator[Violation]:
    """No job waits in a hold of ours, and none ever waited for longer than the watchdog allows: the time does not count
    in which the watchdog or the scheduler was out of order."""
    if job.record.state is JobState.PENDING and job.record.hold is Hold.REQUEUED:
        yield _violation(Breach.LEFT_HELD, job, f"pending, {job.record.reason}: {job.record.admin_comment[:200]}")
    for held in job.holds:
        away = observed.out_of_order((Party.WATCHDOG, Party.SCHEDULER), held.since, held.until)
        if held.until - held.since > observed.may_be_held_for + away + SLACK:
            lasted_s, away_s = (held.until - held.since).total_seconds(), away.total_seconds()
            detail = (
                f"held for {lasted_s:.0f} s from {held.since:%H:%M:%S}, nobody there to release it for {away_s:.0f} s"
            )
            yield _violation(Breach.LEFT_HELD, job, detail)


def without_intent(job: JobHistory) -> Iterator[Violation]:
    """Every act comes after the record of its intent, and every outcome belongs to one order."""
    orders = (*_told(job, AuditKind.ORDERED), *(e for e in job.of_watchdog if e.kind is AuditKind.ORDERED))
    later = ", ".join(f"{order.at:%H:%M:%S.%f}" for order in orders) or "never"
    for call in job.our_calls:
        if not any(order.at <= call.received_at for order in orders):
            detail = f"{call.verb.value} at {call.received_at:%H:%M:%S.%f}, ordered {later}"
            yield _violation(Breach.NO_INTENT, job, detail)
    yield from _orders_and_outcomes(job)
    keys = {event.key for event in job.of_watchdog}
    for event in job.of_watchdog:
        hold, _, kind = event.key.rpartition("/")
        if kind == AuditKind.ACTED.value and f"{hold}/{AuditKind.ORDERED.value}" not in keys:
            yield _violation(Breach.NO_INTENT, job, f"released by the watchdog and not ordered: {hold}")


def _orders_and_outcomes(job: JobHistory) -> Iterator[Violation]:
    open_orders: set[str] = set()
    seen: set[str] = set()
    for event in job.events:
        key = event.advice.key if event.advice else ""
        if event.kind is AuditKind.ORDERED:
            if key in seen:
                yield _violation(Breach.NO_INTENT, job, f"ordered twice: {key}")
            open_orders.add(key)
            seen.add(key)
        elif event.kind is AuditKind.RECONCILED and key in open_orders:
            open_orders.remove(key)
        elif event.kind is AuditKind.RECONCILED:
            yield _violation(Breach.NO_INTENT, job, f"reconciled without an open order: {key}")
    for key in open_orders:
        yield _violation(Breach.LOST_EVENT, job, f"ordered, and no outcome is on record: {key}")


def lost_events(job: JobHistory) -> Iterator[Violation]:
    """The events of each guard are numbered without a gap and end with the one that closes it."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for event in job.events:
        guard, _, number = event.key.rpartition("/")
        numbers[guard].append(int(number))
    for guard, told in numbers.items():
        if sorted(told) != list(range(1, max(told) + 1)):
            missing = sorted(set(range(1, max(told) + 1)) - set(told))
            yield _violation(Breach.LOST_EVENT, job, f"{guard}: missing {missing}, of {len(told)} told")
    if not is_told(job):
        last = job.events[-1].kind.value if job.events else "nothing at all"
        yield _violation(Breach.LOST_EVENT, job, f"{last} is the last on record, with the job {job.record.state.value}")


def is_told(job: JobHistory) -> bool:
    """Whether nothing more has to come. A job stays under guard while a person holds it, and where nothing may be done
    with it; one that did not opt in, or was over before anybody looked, has no trail."""
    if not job.kind.opted_in:
        return True
    kinds = {event.kind for event in job.events}
    if job.record.hold is not Hold.NONE or not job.record.state.ended:
        ordered = AuditKind.ORDERED in kinds or not job.our_calls
        return AuditKind.ADOPTED in kinds and ordered and not _open_orders(job)
    if not job.guarded and job.record.state in (JobState.COMPLETED, JobState.CANCELLED):
        return True
    if bool(job.events) and job.events[-1].kind is AuditKind.CLOSED:
        return True
    if job.kind is JobKind.OBSERVED:
        return AuditKind.ADVISED in kinds and job.record.state is not JobState.COMPLETED
    return job.kind is JobKind.NO_REQUEUE and AuditKind.RECONCILED in kinds


def _open_orders(job: JobHistory) -> set[str]:
    """The advice that was ordered and whose outcome is not on record."""
    return _advice_of(job, AuditKind.ORDERED) - _advice_of(job, AuditKind.RECONCILED)


def _advice_of(job: JobHistory, kind: AuditKind) -> set[str]:
    return {event.advice.key for event in _told(job, kind) if event.advice}


def exclusions_lost(job: JobHistory) -> Iterator[Violation]:
    """What the user excluded stays excluded, at every moment."""
    lists = [call.exclude for call in _accepted(job.our_calls, Verb.CONSTRAIN) if call.exclude is not None]
    for excluded in (*lists, job.record.excluded_nodes):
        if missing := sorted(set(job.user_excluded) - set(excluded)):
            yield _violation(Breach.EXCLUSIONS_LOST, job, f"{missing} missing from {list(excluded)}")


def touched(job: JobHistory, observed: Observed) -> Iterator[Violation]:
    """Jobs that did not opt in or are only observed, that their owner cancelled or that a person holds are left alone;
    one that must not be requeued is not."""
    if not job.kind.may_be_touched and job.our_calls:
        yield _violation(Breach.TOUCHED, job, f"{len(job.our_calls)} calls of ours")
    if not job.kind.opted_in and job.events:
        yield _violation(Breach.TOUCHED, job, f"not opted in, and {len(job.events)} events")
    if job.kind is JobKind.NO_REQUEUE and _accepted(job.our_calls, Verb.REQUEUE, Verb.ALLOW_REQUEUE):
        yield _violation(Breach.TOUCHED, job, "requeued against its own word")
    for word in _words_of_people(job, observed):
        later = [call for call in job.our_calls if call.accepted and call.at > word.at and not _clears(call, word)]
        for call in later:
            if call.received_at > word.at + observed.in_flight:
                passed_s = (call.received_at - word.at).total_seconds()
                yield _violation(Breach.TOUCHED, job, f"{call.verb.value} {passed_s:.1f} s after a {word.verb.value}")
        if not later and not _as_the_person_left_it(word, job):
            detail = f"{word.verb.value} undone: {job.record.state.value}, {job.record.hold}"
            yield _violation(Breach.TOUCHED, job, detail)


def _clears(call: Call, word: Call) -> bool:
    """Whether the call only replaces our mark on a job that a person holds."""
    return word.verb is Verb.HOLD and call.verb is Verb.CONSTRAIN and call.exclude is None


def groundless(job: JobHistory) -> Iterator[Violation]:
    """Nothing is restarted that did not fail, and nothing for ever."""
    restarts = len(_accepted(job.our_calls, Verb.REQUEUE))
    if restarts > MAX_RESTARTS.get(job.kind, MANY_RESTARTS):
        yield _violation(Breach.GROUNDLESS, job, f"restarted {restarts} times by relight")
    if restarts > MANY_RESTARTS:
        yield _violation(Breach.ENDLESS, job, f"restarted {restarts} times by relight")


def untrue(job: JobHistory) -> Iterator[Violation]:
    """What was recorded as converged is so in the scheduler's records, as far as these did not forget."""
    forgot = any(call.forgotten for call in job.calls)
    for event in _told(job, AuditKind.RECONCILED):
        seen, advice = event.reconciliation, event.advice
        if seen is None or advice is None:
            yield _violation(Breach.LOST_EVENT, job, f"{event.key} carries no outcome or no advice")
            continue
        if seen.disposition is not Disposition.CONVERGED or forgot:
            continue
        if advice.restarts and job.record.restart_count <= advice.attempt:
            yield _violation(Breach.UNTRUE, job, f"restart of attempt {advice.attempt}, which is still the last one")
        if advice.restarts and set(seen.excluded) != set(_exclusions_at(event, job)):
            detail = f"excluded {list(seen.excluded)}, the scheduler had {list(_exclusions_at(event, job))}"
            yield _violation(Breach.UNTRUE, job, detail)
        if advice.action is Action.STOP and not (job.record.state.ended and job.record.restart_count == advice.attempt):
            yield _violation(Breach.UNTRUE, job, f"stopped in attempt {advice.attempt}, and it went on")


def unfinished(job: JobHistory) -> Iterator[Violation]:
    """Everything comes to its end once the blows are over."""
    if not job.settled:
        yield _violation(Breach.UNFINISHED, job, f"{job.record.state.value}, attempt {job.record.restart_count}")


def _words_of_people(job: JobHistory, observed: Observed) -> list[Call]:
    """The calls by which a person took the job out of our hands, as far as the scheduler can't have forgotten them."""
    cancels = [call for call in _accepted(job.calls, Verb.CANCEL) if call.state is JobState.CANCELLED]
    words = [call for call in (*cancels, *_accepted(job.calls, Verb.HOLD)) if not call.ours]
    crashes = [o.since for o in observed.outages if o.party is Party.SCHEDULER and o.fatal]
    return [word for word in words if not any(timedelta() <= crash - word.at < SAVED_EVERY for crash in crashes)]


def _as_the_person_left_it(word: Call, job: JobHistory) -> bool:
    if word.verb is Verb.CANCEL:
        return job.record.state is JobState.CANCELLED
    return job.record.hold in (Hold.USER, Hold.ADMIN)


def _exclusions_at(event: AuditEvent, job: JobHistory) -> tuple[str, ...]:
    """The exclusion list in force when the scheduler was looked at."""
    lists = [
        call.exclude
        for call in _accepted(job.our_calls, Verb.CONSTRAIN)
        if call.exclude is not None and call.at <= event.at
    ]
    return lists[-1] if lists else job.user_excluded


def _accepted(calls: tuple[Call, ...], *verbs: Verb) -> list[Call]:
    return [call for call in calls if call.accepted and call.verb in verbs and not call.forgotten]


def _told(job: JobHistory, kind: AuditKind) -> list[AuditEvent]:
    return [event for event in job.events if event.kind is kind]


def _violation(breach: Breach, job: JobHistory, detail: str) -> Violation:
    return Violation(breach=breach, subject=f"job {job.job_id} ({job.kind.value})", detail=detail)
