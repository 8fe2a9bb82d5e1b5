"""The action protocol among crashes, lost answers, Slurm's own requeues and people: it holds, and mutants do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import settings

from activities.scheduler import requeue, steps
from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.requeue import Carrying, SchedulerActs
from activities.scheduler.steps import ActOrder, Sent, Step
from recovery.model import Disposition, Reconciliation
from tests.protocol.machine import Protocol, WithWindows, play
from tests.protocol.parts import START


@pytest.fixture(autouse=True)
def no_pause_of_this_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only clock here is the machine's, so that a run can be repeated."""
    monkeypatch.setattr(requeue, "STALE_AFTER_S", math.inf)


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=250, stateful_step_count=30, deadline=None)
TestWithWindows = WithWindows.TestCase
TestWithWindows.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)

NextStep = Callable[..., Step | Reconciliation]
real_next_step: NextStep = steps.next_step


def believes(change: Callable[[JobRecord], dict[str, Any]]) -> NextStep:
    """The real rules over a record that is changed on its way to them."""

    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        return real_next_step(record.model_copy(update=change(record)), order, now, sent=sent)

    return next_step


def takes_a_cancelled_job_for_a_failed_one(patch: pytest.MonkeyPatch) -> None:
    failed = {"state": JobState.FAILED}
    patch.setattr(requeue, "next_step", believes(lambda job: failed if job.state is JobState.CANCELLED else {}))


def requeues_without_reading_the_restart_count(patch: pytest.MonkeyPatch) -> None:
    first = {"restart_count": 0, "submitted_at": START}
    patch.setattr(requeue, "next_step", believes(lambda job: {} if job.state is JobState.PENDING else first))


def forgets_that_it_sent_the_requeue(patch: pytest.MonkeyPatch) -> None:
    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        return real_next_step(record, order, now, sent=Sent.NOTHING)

    patch.setattr(requeue, "next_step", next_step)


def remembers_the_requeue_only_once_it_was_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Carrying, "about_to", lambda self, step: None)


def in_place_of(step: Step, other: Step) -> NextStep:
    """The real rules with one step exchanged for another."""

    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        reached = real_next_step(record, order, now, sent=sent)
        return other if reached is step else reached

    return next_step


def holds_an_ended_attempt_that_takes_no_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requeue, "next_step", in_place_of(Step.REQUEUE, Step.REQUEUE_HOLD))


def holds_before_it_marks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requeue, "next_step", in_place_of(Step.MARK, Step.REQUEUE_HOLD))


def requeues_without_a_hold_what_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requeue, "next_step", in_place_of(Step.MARK, Step.REQUEUE))


def cuts_a_checkpoint_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "_spared", lambda *_: False)


def takes_every_hold_for_its_own(patch: pytest.MonkeyPatch) -> None:
    def held_by_us(record: JobRecord, order: ActOrder, *, sent: Sent) -> bool:
        return record.hold is not Hold.NONE

    patch.setattr(steps, "held_by_us", held_by_us)


def drops_the_users_exclusions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ActOrder, "wanted_exclusions", lambda self, *_: tuple(sorted(self.advice.exclude)))


def excludes_over_a_persons_list(patch: pytest.MonkeyPatch) -> None:
    first_seen: list[tuple[str, ...]] = []

    def wanted_exclusions(order: ActOrder, current: tuple[str, ...], _: tuple[str, ...]) -> tuple[str, ...]:
        first_seen.append(current)
        return tuple(sorted({*first_seen[0], *order.advice.exclude} - set(order.unable)))

    patch.setattr(ActOrder, "wanted_exclusions", wanted_exclusions)


def overlooks_a_hold_on_a_job_that_runs_or_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "_kept_by_a_person", lambda record: "")


def gives_a_held_job_up_when_the_advice_expires(patch: pytest.MonkeyPatch) -> None:
    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        if now > order.advice.expires_at:
            return Reconciliation(disposition=Disposition.ABANDONED, reason="advice_expired", observed_at=now)
        return real_next_step(record, order, now, sent=sent)

    patch.setattr(requeue, "next_step", next_step)


def insists_on_an_exclusion_that_slurm_refuses(patch: pytest.MonkeyPatch) -> None:
    async def less_what_is_refused(self: SchedulerActs, order: ActOrder, *, everything: bool) -> ActOrder:
        return order

    patch.setattr(SchedulerActs, "_less_what_is_refused", less_what_is_refused)


def tells_of_exclusions_that_it_did_not_see(patch: pytest.MonkeyPatch) -> None:
    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        step = real_next_step(record, order, now, sent=sent)
        if isinstance(step, Reconciliation):
            return step.model_copy(update={"excluded": order.wanted_exclusions(record.excluded_nodes)})
        return step

    patch.setattr(requeue, "next_step", next_step)


def takes_the_release_for_granted(patch: pytest.MonkeyPatch) -> None:
    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        step = real_next_step(record, order, now, sent=sent)
        if step is Step.RELEASE:
            return real_next_step(record.model_copy(update={"hold": Hold.NONE}), order, now, sent=sent)
        return step

    patch.setattr(requeue, "next_step", next_step)


def leaves_its_mark_behind(patch: pytest.MonkeyPatch) -> None:
    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        step = real_next_step(record, order, now, sent=sent)
        if step is Step.UNMARK:
            return real_next_step(record.model_copy(update={"admin_comment": ""}), order, now, sent=sent)
        return step

    patch.setattr(requeue, "next_step", next_step)


def asks_for_a_requeue_again_after_the_end(patch: pytest.MonkeyPatch) -> None:
    def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
        step = real_next_step(record, order, now, sent=sent)
        refused = isinstance(step, Reconciliation) and step.reason == "not_requeueable"
        return Step.ALLOW_REQUEUE if refused and order.override_no_requeue else step

    patch.setattr(requeue, "next_step", next_step)


@pytest.mark.parametrize(
    "mutant",
    [
        takes_a_cancelled_job_for_a_failed_one,
        requeues_without_reading_the_restart_count,
        forgets_that_it_sent_the_requeue,
        remembers_the_requeue_only_once_it_was_answered,
        takes_every_hold_for_its_own,
        holds_an_ended_attempt_that_takes_no_mark,
        holds_before_it_marks,
        requeues_without_a_hold_what_runs,
        cuts_a_checkpoint_off,
        drops_the_users_exclusions,
        excludes_over_a_persons_list,
        overlooks_a_hold_on_a_job_that_runs_or_failed,
        gives_a_held_job_up_when_the_advice_expires,
        insists_on_an_exclusion_that_slurm_refuses,
        tells_of_exclusions_that_it_did_not_see,
        takes_the_release_for_granted,
        leaves_its_mark_behind,
        asks_for_a_requeue_again_after_the_end,
    ],
    ids=lambda case: case.__name__,
)
def test_the_machine_catches_a_protocol_that(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        play_many(5_000)


def play_many(runs: int) -> None:
    for seed in range(runs):
        play(Protocol, seed)
        play(WithWindows, seed)
