"""Submitting a job anew, as a pure function: from what the scheduler shows now to the one step that comes next.

    ended or forgotten:  submitted held -> released -> accounted for -> CONVERGED
    still running:       submitted held -> the old one cancelled -> released -> accounted for -> CONVERGED

A job that can't be requeued comes back as another one, which carries in its own comment, from its first moment on,
which order it was submitted for: `Lineage`. So a repetition after a crash or a lost answer finds it, and never submits
a second one that could run. Slurm may carry a submission out long after its caller gave up, so a new job is held until
a look at all jobs shows which is the only one that will be released: the one with the lowest number. The others have
never run, and are cancelled; so is the only one, where a person has meanwhile cancelled or requeued the old job.

The comment is its owner's: who writes another's lineage into a job of their own gains nothing, since only jobs of the
same owner count here, and a history is handed on only where the older job's workflow names this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from activities.scheduler.marker import Account, read_marker
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from activities.scheduler.submission import Submission
from recovery.model import Advice, Disposition, JobId, NodeName, Reconciliation, Value
from recovery.optin import MAX_COMMENT_CHARS, OptIn, parse_comment

KEY = "relight-resubmission"
QUIET = timedelta(seconds=30)
"""How long no new job may have shown after a submission without an answer before another one is sent."""


class Lineage(Value):
    """What a job that was submitted anew carries in its comment."""

    order: str = Field(max_length=200)
    """The key of the advice that it was submitted for: cluster, job, attempt and generation."""
    of: JobId
    """The job that it stands for."""
    count: int = Field(ge=1, le=10_000)
    """How often the first job of the line has been submitted anew."""
    since: datetime


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

    @property
    def lineage(self) -> Lineage:
        """What the new job carries."""
        return Lineage(order=self.advice.key, of=self.advice.job.job_id, count=self.count, since=self.ordered_at)

    def exclusions(self, submission: Submission, *, known: frozenset[NodeName]) -> tuple[NodeName, ...]:
        """The new job's whole list: the old one's, less what we withdraw, and what we exclude of the nodes that the
        cluster has. For one name that it does not know Slurm refuses the whole submission."""
        ours = set(self.advice.exclude) - set(submission.required)
        return tuple(sorted(((set(submission.exclude) - set(self.withdraw)) | ours) & known))


class Step(StrEnum):
    """One call to the scheduler, each safe to repeat."""

    SUBMIT = "submit"
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


def read_lineage(comment: str) -> Lineage | None:
    """Return what a comment says of the job's line; None where it says nothing that can be read."""
    if KEY not in comment:
        return None
    try:
        return Lineage.model_validate(_document(comment).get(KEY))
    except ValidationError:
        return None


def comment_with(order: ResubmitOrder, comment: str) -> str | None:
    """Return the new job's comment: the old one's, with its lineage. None where that has no room in it, or is no JSON
    object. A job that was taken under guard by hand opts in by it, in the way in which it is guarded."""
    document = _document(comment)
    if comment.strip() and not document:
        return None
    if parse_comment(comment) is None:
        document |= {"relight": order.optin.model_dump(mode="json", exclude={"warning"}, exclude_none=True)}
    text = json.dumps(document | {KEY: order.lineage.model_dump(mode="json")}, separators=(",", ":"))
    return text if len(text) <= MAX_COMMENT_CHARS else None


def look(jobs: Iterable[JobRecord], order: ResubmitOrder) -> Sight:
    """Return what a reading of all jobs shows of the order."""
    old, new = None, []
    for job in jobs:
        if job.job_id == order.advice.job.job_id and _is_of_the_attempt(job, order):
            old = job
        elif job.user == order.job.user and (lineage := read_lineage(job.comment)) is not None:
            new += [job] if lineage.order == order.advice.key else []
    return Sight(old, tuple(sorted(new, key=lambda job: int(job.job_id.partition("_")[0]))))


def next_step(
    sight: Sight, order: ResubmitOrder, now: datetime, *, sent_at: datetime | None, ended_by_us: bool
) -> Step | Reconciliation:
    """Return the step that `sight` calls for, or the reconciliation once nothing is left to do.

    `sent_at`: when a submission may have been sent for this order that no answer came to; None: none was.
    `ended_by_us`: the old job may have been cancelled for this order.
    """
    kept = sight.kept
    if kept is None:
        return _before_submission(sight.old, order, now, sent_at)
    if sight.twins:
        return Step.CANCEL_TWIN
    overtaken = _overtaken(sight.old, order, ended_by_us=ended_by_us)
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
    if sight.old is None or (sight.old.state.ended and JobFlag.COMPLETING not in sight.old.flags):
        return Step.RELEASE
    return Step.WAIT if JobFlag.COMPLETING in sight.old.flags else Step.CANCEL_OLD


def _overtaken(old: JobRecord | None, order: ResubmitOrder, *, ended_by_us: bool) -> str:
    """Why the old job must not come back, or does so by itself; empty: it is as the advice found it."""
    if old is None:
        return ""
    if old.state is JobState.COMPLETED:
        return "completed"
    if old.state is JobState.CANCELLED:
        return "" if ended_by_us else "owner_cancelled"
    requeued = old.restart_count > order.advice.attempt or old.state is JobState.PENDING
    return "superseded" if requeued else ""


def is_accounted_for(new: JobRecord, order: ResubmitOrder) -> bool:
    """Whether the new job was released for the order: whoever holds it from then on is a person."""
    marker = read_marker(new.admin_comment)
    return isinstance(marker, Account) and marker.did == order.advice.key


def _before_submission(
    old: JobRecord | None, order: ResubmitOrder, now: datetime, sent_at: datetime | None
) -> Step | Reconciliation:
    if overtaken := _overtaken(old, order, ended_by_us=False):
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


def _document(comment: str) -> dict[str, Any]:
    """The comment as JSON; empty where it is no object."""
    if len(comment) > MAX_COMMENT_CHARS:
        return {}
    try:
        document = json.loads(comment)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
