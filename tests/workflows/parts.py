"""What the world around a workflow says, for tests to say it: records, findings, verdicts and outcomes of acts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.adopt import RecoveryStart
from activities.assessment import Terms
from activities.chains import Stranded
from activities.findings import (
    CannotStart,
    DependentsStranded,
    Ended,
    Faulted,
    FaultSurvived,
    Finding,
    Gone,
    LeaseOver,
    LinesLost,
    Reached,
    Requeued,
    SightChanged,
    Slowed,
    Stalled,
    WatchOrder,
)
from activities.logs.protocol import LogCursor
from activities.scheduler.protocol import JobRecord, JobState
from activities.scheduler.resubmission import ResubmitOrder
from activities.scheduler.steps import ActOrder
from activities.scheduler.successors import CONSTRAINED, SuccessorOrder
from recovery.model import (
    Action,
    Category,
    Confidence,
    Disposition,
    JobKey,
    Milestone,
    MilestoneKind,
    Mode,
    Progress,
    Reconciliation,
    SymptomKind,
    Verdict,
)
from recovery.optin import OptIn
from workflows.overrides import Request

SUBMITTED_AT = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
NODES = ("node01", "node02", "node03", "node04")
ACT = Terms(mode=Mode.ACT, acknowledged=True)
OBSERVE = Terms(mode=Mode.OBSERVE, acknowledged=True)
RESUBMIT = Terms(mode=Mode.ACT, acknowledged=True, resubmit=True)
APPROVAL = Terms(mode=Mode.ACT, acknowledged=True, approval=True)

Scene = Callable[[WatchOrder, datetime], Finding]
"""What the watch of an attempt reports at a moment."""


def submitted_at(attempt: int) -> datetime:
    """When Slurm put the attempt into its queue: it moves the submit time at each requeue."""
    return SUBMITTED_AT + timedelta(hours=attempt)


def record(job_id: str, attempt: int = 0, state: JobState = JobState.RUNNING, **facts: Any) -> JobRecord:
    """The job as the scheduler describes it."""
    return JobRecord(
        job_id=job_id,
        **{
            "name": "pretrain",
            "user": "ana",
            "partition": "gpu",
            "state": state,
            "restart_count": attempt,
            "submitted_at": submitted_at(attempt),
            "nodes": NODES,
            "node_count": len(NODES),
            "excluded_nodes": ("node09",),
            **facts,
        },
    )


def start(job: JobKey, terms: Terms = ACT, optin: OptIn | None = None, **facts: Any) -> RecoveryStart:
    """A job's workflow argument: it opted in to acts unless `optin` says otherwise."""
    return RecoveryStart(job=job, optin=optin or OptIn(mode=Mode.ACT), record=record(job.job_id, **facts), terms=terms)


def ended(
    state: JobState = JobState.FAILED, *, checkpoint: int | None = None, iteration: int | None = None, **facts: Any
) -> Scene:
    """The attempt ends."""
    return lambda order, now: Ended(
        **_carried(order, now, Progress(checkpoint=checkpoint, iteration=iteration)),
        record=record(order.job.job_id, order.attempt, state, **facts),
    )


def requeued(**facts: Any) -> Scene:
    """The job is in the queue again, and relight did not put it there."""
    return lambda order, now: Requeued(
        **_carried(order, now),
        record=record(order.job.job_id, order.attempt + 1, JobState.PENDING, nodes=(), **facts),
        nodes=NODES,
    )


def faulted(*, certain: bool) -> Scene:
    """A fatal line while the attempt runs; certain: and no progress since."""
    return lambda order, now: Faulted(
        **_carried(order, now), record=record(order.job.job_id, order.attempt), happened_at=now, certain=certain
    )


def survived() -> Scene:
    """Training went on after the fatal line."""
    return lambda order, now: FaultSurvived(**_carried(order, now))


def stalled() -> Scene:
    """No progress within the deadline."""
    return lambda order, now: Stalled(
        **_carried(order, now), record=record(order.job.job_id, order.attempt), summary="no progress for 900 s"
    )


def slowed() -> Scene:
    """Training goes on, slower than before."""
    return lambda order, now: Slowed(
        **_carried(order, now),
        record=record(order.job.job_id, order.attempt),
        happened_at=now,
        summary="15% slower: 1.15 s an iteration, before 1 s",
    )


def allocated(nodes: tuple[str, ...] = NODES) -> Scene:
    """The attempt gets its nodes."""
    return lambda order, now: Reached(
        **_carried(order, now), milestone=_milestone(MilestoneKind.ALLOCATED, order, now), nodes=nodes
    )


def resumed(at_iteration: int = 101) -> Scene:
    """The attempt makes its first progress."""
    return lambda order, now: Reached(
        **_carried(order, now, Progress(iteration=at_iteration, first_iteration=at_iteration, last_at=now)),
        milestone=_milestone(MilestoneKind.RESUMED, order, now),
    )


def blind() -> Scene:
    """The log can't be read."""
    return lambda order, now: SightChanged(**_carried(order, now), blind_since=now, reason="the log is missing")


def lines_lost(count: int) -> Scene:
    """So many lines of the attempt are known to be lost."""
    return lambda order, now: LinesLost(**_carried(order, now), lost_lines=count)


def sighted() -> Scene:
    """The log can be read again."""
    return lambda order, now: SightChanged(**_carried(order, now), blind_since=None)


def stranded(others: Stranded) -> Scene:
    """Others wait for the job in vain since it failed."""
    return lambda order, now: DependentsStranded(**_carried(order, now), stranded=others)


def cannot_start(*nodes: str) -> Scene:
    """Slurm will not start the job on what its constraints leave; relight keeps it off `nodes`."""
    return lambda order, now: CannotStart(**_carried(order, now), nodes=nodes)


def gone() -> Scene:
    """The scheduler does not know the job any more."""
    return lambda order, now: Gone(**_carried(order, now), detail="the scheduler does not know the job any more")


def lease_over() -> Scene:
    """Nothing to report for the whole lease."""
    return lambda order, now: LeaseOver(**_carried(order, now))


def completed(**facts: Any) -> Scene:
    """The attempt ends well."""
    return ended(JobState.COMPLETED, **facts)


def bad_node(node: str = "node02") -> Verdict:
    """A GPU is gone, and the evidence names its node."""
    return Verdict(
        symptom=SymptomKind.CRASH,
        category=Category.HARDWARE_GPU,
        cause="gpu_fallen_off_bus",
        culprits=(node,),
        victims=tuple(other for other in NODES if other != node),
        confidence=Confidence.ESTABLISHED,
        suggested=Action.RESTART_EXCLUDE,
        summary=f"a GPU of {node} has fallen off the bus",
        fingerprint="gpu_fallen_off_bus",
    )


def no_cause() -> Verdict:
    """Nothing in the log says why."""
    return Verdict(symptom=SymptomKind.CRASH, category=Category.UNKNOWN, cause="unknown")


def user_error() -> Verdict:
    """The program's own mistake, always at the same line."""
    return Verdict(
        symptom=SymptomKind.CRASH,
        category=Category.USER_CODE,
        cause="python_exception",
        confidence=Confidence.ESTABLISHED,
        suggested=Action.STOP,
        summary="KeyError in train.py",
        fingerprint="KeyError@train.py:10",
    )


def done(order: ActOrder, now: datetime) -> Reconciliation:
    """The scheduler shows what was ordered."""
    stop = not order.advice.restarts
    current = ("node09",)
    return Reconciliation(
        disposition=Disposition.CONVERGED,
        reason="already_satisfied" if stop else "desired_state_observed",
        observed_at=now,
        restart_count=order.advice.attempt + (0 if stop else 1),
        excluded=current if stop else order.wanted_exclusions(current),
        submitted_at=submitted_at(order.advice.attempt + (0 if stop else 1)),
    )


def started_as_it_was(order: ActOrder, now: datetime) -> Reconciliation:
    """The attempt had begun with the list that it was put back with."""
    return done(order, now).model_copy(update={"reason": "already_satisfied", "excluded": ("node02", "node09")})


def abandoned(reason: str, *, ahead: int = 0) -> Callable[[ActOrder, datetime], Reconciliation]:
    """The order was given up; the job stands `ahead` attempts further on."""
    return lambda order, now: Reconciliation(
        disposition=Disposition.ABANDONED,
        reason=reason,
        observed_at=now,
        restart_count=order.advice.attempt + ahead,
        submitted_at=submitted_at(order.advice.attempt + ahead),
    )


def submitted_as(job_id: str) -> Callable[[ResubmitOrder, datetime], Reconciliation]:
    """Another job runs in the place of the order's."""
    return lambda order, now: Reconciliation(
        disposition=Disposition.CONVERGED,
        reason="desired_state_observed",
        observed_at=now,
        excluded=order.advice.exclude,
        submitted_at=now,
        resubmitted_as=job_id,
    )


def not_submitted(why: str) -> Callable[[ResubmitOrder, datetime], Reconciliation]:
    """Nothing could be submitted."""
    return lambda _order, now: Reconciliation(
        disposition=Disposition.ABANDONED, reason="not_submitted", observed_at=now, detail=why
    )


def chain_goes_on(order: SuccessorOrder, now: datetime) -> Reconciliation:
    """The next job of the chain avoids the nodes."""
    return Reconciliation(
        disposition=Disposition.CONVERGED,
        reason=CONSTRAINED,
        observed_at=now,
        excluded=order.advice.exclude,
        detail=f"job 13 of the chain is next, and avoids {', '.join(order.advice.exclude)}",
    )


def no_successor(_order: SuccessorOrder, now: datetime) -> Reconciliation:
    """Nobody waits."""
    return Reconciliation(
        disposition=Disposition.ABANDONED, reason="no_successor", observed_at=now, detail="no job of its chain waits"
    )


def by(who: str, reason: str = "", **facts: Any) -> Request:
    """A person's request."""
    return Request(who=who, reason=reason, **facts)


def _carried(order: WatchOrder, now: datetime, progress: Progress | None = None) -> dict[str, Any]:
    source = f"/logs/{order.job.job_id}.out"
    began = order.began or (LogCursor(source=source),)
    read_to = LogCursor(source=source, offset=1_000 * (order.attempt + 1), line=10 * (order.attempt + 1))
    return {
        "at": now,
        "progress": progress or Progress(),
        "began": began,
        "logs": (read_to,),
        "read_out": (source,),
    }


def _milestone(kind: MilestoneKind, order: WatchOrder, now: datetime) -> Milestone:
    return Milestone(kind=kind, attempt=order.attempt, at=now)
