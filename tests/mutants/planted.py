"""The planted bugs, one for each promise, as patches of behaviour: in a test's own process, or in the worker of a chaos
run (``python -m tests.chaos --mutant NAME``)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from activities.assessment import AttributeOrder
from activities.logs.attempt import AttemptLog
from activities.logs.protocol import LogCursor
from activities.scheduler import requeue, steps, watchdog
from activities.scheduler.overdue import Leave, OurHold
from activities.scheduler.protocol import Hold, JobRecord, JobState, SchedulerUnavailable
from activities.scheduler.requeue import Carrying, SchedulerActs
from activities.scheduler.steps import ActOrder
from recovery.attribution import verdicts
from recovery.audit import AuditKind
from recovery.model import Reconciliation
from tests.mutants import checks
from workflows.advising import Advising
from workflows.failure import Failure, unattributed
from workflows.ledger import Ledger

Plant = Callable[[pytest.MonkeyPatch], None]

BUDGET_RULES = ("_same_failure_again", "_no_new_checkpoint", "_budget", "_job_cap")


@dataclass(frozen=True)
class Mutant:
    """One bug."""

    promise: str
    plant: Plant
    caught_by: Callable[[], None]
    """Raises AssertionError where the bug is planted, and nothing where it is not."""


def _acts_in_observe_mode(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Carrying, "begins_with", lambda self, step, record: False)


def _puts_no_order_on_record(patch: pytest.MonkeyPatch) -> None:
    tell = Ledger.tell

    def silent(self: Ledger, kind: AuditKind, summary: str, **more: Any) -> None:
        if kind is not AuditKind.ORDERED:
            tell(self, kind, summary, **more)

    patch.setattr(Ledger, "tell", silent)


def _takes_the_first_read_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Every step is decided from what the first try of the order saw of the attempt."""
    first: dict[str, tuple[int, datetime]] = {}
    real = steps.next_step

    def next_step(record: JobRecord, order: ActOrder, now: datetime, **sent: Any) -> Any:
        count, submitted_at = first.setdefault(order.advice.key, (record.restart_count, record.submitted_at))
        pending = record.state is JobState.PENDING
        believed = {} if pending else {"restart_count": count, "submitted_at": submitted_at}
        return real(record.model_copy(update=believed), order, now, **sent)

    patch.setattr(requeue, "next_step", next_step)


def _takes_every_hold_for_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "held_by_us", lambda record, order, **_: record.hold is not Hold.NONE)
    patch.setattr(steps, "_kept_by_a_person", lambda record: "")


def _takes_silence_for_the_end_of_the_job(patch: pytest.MonkeyPatch) -> None:
    real = SchedulerActs._read_and_step

    async def read_and_step(self: SchedulerActs, carrying: Carrying) -> Reconciliation | None:
        try:
            return await real(self, carrying)
        except SchedulerUnavailable as error:
            return Reconciliation.abandoned("job_gone", self._clock(), str(error))

    patch.setattr(SchedulerActs, "_read_and_step", read_and_step)


def _never_finds_a_hold_overdue(patch: pytest.MonkeyPatch) -> None:
    def decide(hold: OurHold | Leave, held_for: timedelta, deadline: timedelta) -> Leave:
        return Leave(reason="there is time")

    patch.setattr(watchdog, "decide", decide)


def _reads_each_attempts_log_from_its_start(patch: pytest.MonkeyPatch) -> None:
    real = AttemptLog.__init__

    def init(self: AttemptLog, *arguments: Any, **more: Any) -> None:
        real(self, *arguments, **more)
        self.began = self.cursors = tuple(LogCursor(source=cursor.source) for cursor in self.cursors)

    patch.setattr(AttemptLog, "__init__", init)


def _attributes_outside_the_history(patch: pytest.MonkeyPatch) -> None:
    async def attribute(self: Advising, order: AttributeOrder, failure: Failure) -> Any:
        return unattributed(failure)

    patch.setattr(Advising, "_attribute", attribute)


def _quotes_secrets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verdicts, "redact", lambda text: text)


def _has_no_budgets(patch: pytest.MonkeyPatch) -> None:
    rules = importlib.import_module("recovery.policy.decide")
    patch.setattr(rules, "RULES", tuple(rule for rule in rules.RULES if rule.__name__ not in BUDGET_RULES))


MUTANTS: dict[str, Mutant] = {
    "acts-in-observe-mode": Mutant("observe changes nothing", _acts_in_observe_mode, checks.guarded_model),
    "puts-no-order-on-record": Mutant("on record first", _puts_no_order_on_record, checks.story),
    "takes-the-first-read-for-ever": Mutant("read first, exactly once", _takes_the_first_read_for_ever, checks.model),
    "takes-every-hold-for-its-own": Mutant("a person wins", _takes_every_hold_for_its_own, checks.model),
    "takes-silence-for-the-end": Mutant("unknown is not failed", _takes_silence_for_the_end_of_the_job, checks.model),
    "never-finds-a-hold-overdue": Mutant("nothing waits for us", _never_finds_a_hold_overdue, checks.guarded_model),
    "reads-each-log-from-its-start": Mutant(
        "an attempt stands for itself", _reads_each_attempts_log_from_its_start, checks.next_attempt
    ),
    "attributes-outside-the-history": Mutant(
        "what is recorded replays", _attributes_outside_the_history, checks.replays
    ),
    "quotes-secrets": Mutant("secrets are masked", _quotes_secrets, checks.evidence),
    "has-no-budgets": Mutant("it knows when to stop", _has_no_budgets, checks.careers),
}
