"""Submitting a job anew, as a pure function: from what the scheduler shows now to the one step that comes next.

    ended or forgotten:  submitted held -> released -> accounted for -> CONVERGED
    still running:       submitted held -> the old one marked, and cancelled -> released -> accounted for -> CONVERGED

A job that can't be requeued comes back as another one, which carries in its own comment, from its first moment on,
which order it was submitted for: `Lineage`. So a repetition after a crash or a lost answer finds it, and never submits
a second one that could run. Slurm may carry a submission out long after its caller gave up, so a new job is held until
a look at all jobs shows which is the only one that will be released: the one with the lowest number. The others have
never run, and are cancelled; so is the only one, where a person has meanwhile cancelled or requeued the old job.

The mark on the old one tells our cancel from its owner's, whoever comes to carry the order on (see `Replaced`).

The comment is its owner's: who writes another's lineage into a job of their own gains nothing, since only jobs of the
same owner count here, and a history is handed on only where the older job's workflow names this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from activities.scheduler.lineage import CLOCK_SKEW, QUIET, Lineage, in_order_of_submission, read_lineage
from activities.scheduler.marker import Account, PassedOver, Replaced, read_marker
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from activities.scheduler.submission import Submission
from recovery.model import Advice, Disposition, NodeName, Reconciliation, Value
from recovery.optin import OptIn

MARK_LASTS = timedelta(seconds=60)
"""An older mark on the old job is renewed before that is cancelled."""
CANCELLED_WITHIN = 2 * MARK_LASTS
"""After its mark. What cancels the old job later is somebody else."""


class ResubmitOrder(Value):
    """An advice that is carried out by another job. Durable in the workflow's history before any worker sees it."""

    advice: Advice
    job: JobRecord
    """As it came under guard, with the submit time of the attempt that the advice is for."""
    optin: OptIn
    count: int = Field(ge=1)
    """Which resubmission of its line this is."""
    withdraw: tuple[NodeName, ...] = ()
    """Nodes that relight excluded earlier and that may be used again. Never the user's own."""
    ordered_at: datetime

    def lineage(self, sight: Sight, *, since: datetime, first: bool) -> Lineage:
        """What a new job carries that `sight` calls for; see there."""
        return Lineage(
            order=self.advice.key,
            of=self.advice.job.job_id,
            count=self.count,
            since=since,
            first=first,
            old_is_over=is_over(sight.old),
        )

    def exclusions(self, submission: Submission, *, known: frozenset[NodeName]) -> tuple[NodeName, ...]:
        """The new job's whole list: the old one's, less what we withdraw, and what we exclude of the nodes that the
        cluster has. For one name that it does not know Slurm refuses the whole submission."""
        ours = set(self.advice.exclude) - set(submission.required)
        return tuple(sorted(((set(submission.exclude) - set(self.withdraw)) | ours) & known))


class Step(StrEnum):
    """One call to the scheduler, each safe to repeat."""

    SUBMIT = "submit"
    MARK_OLD = "mark_old"
    CANCEL_OLD = "cancel_old"
    CANCEL_TWIN = "cancel_twin"
    CANCEL_NEW = "cancel_new"
    RELEASE = "release"
    ACCOUNT = "account"
    WAIT = "wait"


class Sight(NamedTuple):
    """What one look at all jobs shows of an order."""

    old: JobRecord | None
    """None: the scheduler has forgotten it, or its id belongs to another job now."""
    new: tuple[JobRecord, ...]
    """The jobs that were submitted for the order, the oldest first."""

    @property
    def kept(self) -> JobRecord | None:
        """The one that is released; the others are its twins."""
        return self.new[0] if self.new else None

    @property
    def twins(self) -> tuple[JobRecord, ...]:
        """Those that never run, and are not cancelled yet."""
        return tuple(job for job in self.new[1:] if job.state is JobState.PENDING)


def look(jobs: Iterable[JobRecord], order: ResubmitOrder) -> Sight:
    """Return what a reading of all jobs shows of the order."""
    old, new = None, []
    for job in jobs:
        if job.job_id == order.advice.job.job_id and _is_of_the_attempt(job, order):
            old = job
        elif job.user == order.job.user and (lineage := read_lineage(job.comment)) is not None:
            new += [job] if lineage.order == order.advice.key else []
    return Sight(old, tuple(sorted(new, key=in_order_of_submission)))


def next_step(
    sight: Sight, order: ResubmitOrder, now: datetime, *, sent_at: datetime | None, ended_by_us: bool
) -> Step | Reconciliation:
    """Return the step that `sight` calls for, or the reconciliation once nothing is left to do.

    `sent_at`: when a submission may have been sent for this order that no answer came to; None: none was.
    `ended_by_us`: the old job was cancelled for this order, whatever its AdminComment says.
    """
    kept = sight.kept
    if kept is None:
        return _before_submission(sight.old, order, now, sent_at)
    if sight.twins:
        return Step.CANCEL_TWIN
    overtaken = overtaken_by(sight.old, order.advice.key, order.advice.attempt, ended_by_us=ended_by_us)
    if is_accounted_for(kept, order):
        return _converged(kept, order, now)
    if kept.state is JobState.CANCELLED:
        return Reconciliation.abandoned(
            overtaken or "person_intervened", now, f"job {kept.job_id}, submitted for it, was cancelled"
        )
    if kept.state.ended:
        return _converged(kept, order, now)
    if kept.hold is Hold.ADMIN:
        return Reconciliation.abandoned(
            "person_intervened", now, f"job {kept.job_id}, submitted for it, is held by another"
        )
    if kept.hold is Hold.NONE:
        return Step.ACCOUNT
    if overtaken:
        return Step.CANCEL_NEW
    word = read_marker(kept.admin_comment)
    if isinstance(word, PassedOver):
        return Reconciliation.abandoned("not_submitted", now, f"job {kept.job_id} was, and stays held: {word.why}")
    return _towards_release(sight.old, order, now)


def _towards_release(old: JobRecord | None, order: ResubmitOrder, now: datetime) -> Step:
    if is_over(old):
        return Step.RELEASE
    if old is None or JobFlag.COMPLETING in old.flags:
        return Step.WAIT
    return Step.CANCEL_OLD if _is_marked(old, order, now) else Step.MARK_OLD


def is_over(old: JobRecord | None) -> bool:
    """Whether the old job has ended, with all of its processes, or is forgotten."""
    return old is None or (old.state.ended and JobFlag.COMPLETING not in old.flags)


def overtaken_by(old: JobRecord | None, order: str, attempt: int, *, ended_by_us: bool = False) -> str:
    """Why the old job must not come back as another one, or does so by itself; empty: it is as the advice found it.

    `order` and `attempt` are the advice's key and attempt; `ended_by_us` as in `next_step`.
    """
    if old is None:
        return ""
    if old.state is JobState.COMPLETED:
        return "completed"
    if old.state is JobState.CANCELLED:
        return "" if ended_by_us or was_cancelled_for(old, order) else "owner_cancelled"
    requeued = old.restart_count > attempt or old.state is JobState.PENDING
    return "superseded" if requeued else ""


def was_cancelled_for(old: JobRecord, order: str) -> bool:
    """Whether relight cancelled the old job for the order, as far as its mark tells."""
    word = read_marker(old.admin_comment)
    if not isinstance(word, Replaced) or word.ends_for != order or old.ended_at is None:
        return False
    return -CLOCK_SKEW <= old.ended_at - word.since <= CANCELLED_WITHIN


def _is_marked(old: JobRecord, order: ResubmitOrder, now: datetime) -> bool:
    word = read_marker(old.admin_comment)
    if not isinstance(word, Replaced) or word.ends_for != order.advice.key:
        return False
    return -CLOCK_SKEW <= now - word.since < MARK_LASTS


def is_accounted_for(new: JobRecord, order: ResubmitOrder) -> bool:
    """Whether the new job was released for the order: whoever holds it from then on is a person."""
    marker = read_marker(new.admin_comment)
    return isinstance(marker, Account) and marker.did == order.advice.key


def _before_submission(
    old: JobRecord | None, order: ResubmitOrder, now: datetime, sent_at: datetime | None
) -> Step | Reconciliation:
    if overtaken := overtaken_by(old, order.advice.key, order.advice.attempt):
        return Reconciliation.abandoned(overtaken, now, "the job was not submitted anew: it changed after the advice")
    if now > order.advice.expires_at:
        return Reconciliation.abandoned("advice_expired", now, "no job was submitted in time")
    if old is not None and (old.hold is not Hold.NONE or old.state is JobState.SUSPENDED):
        return Reconciliation.abandoned("person_intervened", now, "the job is held or suspended, and not by relight")
    if old is not None and (old.state is JobState.UNKNOWN or JobFlag.COMPLETING in old.flags):
        return Step.WAIT
    return Step.WAIT if sent_at is not None and now - sent_at < QUIET else Step.SUBMIT


def _converged(kept: JobRecord, order: ResubmitOrder, now: datetime) -> Reconciliation:
    missing = sorted(set(order.advice.exclude) - set(kept.excluded_nodes))
    return Reconciliation(
        disposition=Disposition.CONVERGED,
        reason="desired_state_observed",
        observed_at=now,
        excluded=kept.excluded_nodes,
        submitted_at=kept.submitted_at,
        eligible_at=kept.eligible_at,
        detail=f"{', '.join(missing)} could not be excluded" if missing else "",
        resubmitted_as=kept.job_id,
    )


def _is_of_the_attempt(job: JobRecord, order: ResubmitOrder) -> bool:
    ahead = job.restart_count - order.advice.attempt
    return job.submitted_at == order.job.submitted_at if ahead == 0 else ahead > 0
