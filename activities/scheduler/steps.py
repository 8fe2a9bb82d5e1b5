"""The action protocol as a pure function: from what the scheduler shows now to the one step that comes next.

    running:  marked -> requeuehold -> constrained -> released -> started now and unmarked -> CONVERGED
    ended:    requeued, and in the same breath marked and constrained -> started now and unmarked -> CONVERGED
    ended, with nothing to be kept off: requeued, and in the same breath started now -> CONVERGED

Nothing is remembered between steps but what Slurm itself shows, so the protocol may be cut off anywhere, by a crash or
a lost answer, and carried on by anybody. Slurm may requeue by itself and a person may change the job at any moment;
both are seen in the record, and a person wins.

No hold of ours is ever without our mark, or nobody could tell it from a person's and it might last for ever. The
exclusion list of a running job can't be changed, that of a pending one can, so a running job is marked and then held.
Nothing of an ended job can be changed, not even AdminComment: it could be marked only after it was held. So it is not
held at all but simply requeued, and Slurm's own delay keeps it from starting before it is constrained. Cut off in
between, it starts by itself, without the exclusion, and that is told. Once nothing is left to constrain and no hold is
ours, nothing needs the mark: to start the job now and to put our account in its place is one request.

Seen on Slurm 22.05.8, 24.11.5 and 26.05.5: an ended job, a task of an array too, is PENDING as soon as ``scontrol
requeue`` has returned, may start 121 s later, and takes AdminComment, ExcNodeList and StartTime=now at once. A site may
choose the delay on 26.05 (SchedulerParameters=requeue_delay; AuthInfo's cred_expire=1 changes nothing on 22.05). Also
with 0, which makes it one second, 8 of 8 jobs were constrained in time; where that fails, it is told.

A job that is being requeued shows COMPLETING with the new restart count and the old submit time; once PENDING it shows
the new one. A hold by a person shows another reason than requeuehold's. How requeuehold ends what runs is said at
`activities.scheduler.cli.SlurmCli.requeue_hold`; nobody has to send a signal before it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from activities.scheduler.marker import Account, Marker, carries_mark, read_marker
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from recovery.model import Advice, Disposition, JobId, NodeName, Reconciliation, Value

CLOCK_SKEW = timedelta(seconds=5)
"""How far the clock of the worker that set a mark may be ahead of ours and still be believed."""


class Step(StrEnum):
    """One call to the scheduler, each safe to repeat."""

    MARK = "mark"
    ALLOW_REQUEUE = "allow_requeue"
    REQUEUE_HOLD = "requeue_hold"
    REQUEUE = "requeue"
    CONSTRAIN = "constrain"
    RELEASE = "release"
    START_NOW = "start_now"
    UNMARK = "unmark"
    CANCEL = "cancel"
    WAIT = "wait"
    """Nothing to call: Slurm is still ending the attempt, or it is spared for a while."""


class Sent(StrEnum):
    """Which call that ends the attempt or puts it back was sent for an order."""

    NOTHING = "nothing"
    PERHAPS = "perhaps"
    """One may have taken effect, of this try or of a lost one: what is there may be ours."""
    HOLD = "hold"
    """requeuehold, in this very try."""


class ActOrder(Value):
    """An advice with all that carrying it out needs. Durable in the workflow's history before any worker sees it."""

    advice: Advice
    submitted_at: datetime
    """The submit time that the attempt's record showed: with the restart count, how a reused job id is told apart."""
    withdraw: tuple[NodeName, ...] = ()
    """Nodes that relight excluded earlier and that may be used again. Never the user's own."""
    clear_delay: bool = True
    override_no_requeue: bool = False
    spare_s: float = 0.0
    """For how long the attempt is left to run once it is marked: it is writing a checkpoint."""
    by_its_comment: bool = False
    """It is the job's own comment that lets relight act: what its owner has made of that since counts."""
    unable: tuple[NodeName, ...] = ()
    """Nodes of the advice that the scheduler refuses to exclude, found out while the order is carried out."""

    def wanted_exclusions(
        self, current: tuple[NodeName, ...], required: tuple[NodeName, ...] = ()
    ) -> tuple[NodeName, ...]:
        """Return the whole list to set: what stands there, less what we withdraw, and what we exclude. A node that the
        job asks for by name is not: with both, the job would wait for ever (BadConstraints, seen on 22.05)."""
        ours = set(self.advice.exclude) - set(self.unable) - set(required)
        return tuple(sorted((set(current) - set(self.withdraw)) | ours))


def next_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
    """Return the step that `record` calls for, or the reconciliation once nothing is left to do."""
    take = _restart_step if order.advice.restarts else _stop_step
    outcome = take(record, order, now, sent=sent)
    if isinstance(outcome, Reconciliation) and is_ours(record, order) and not record.state.ended:
        return Step.UNMARK
    return outcome


def is_ours(record: JobRecord, order: ActOrder) -> bool:
    """Whether the record carries the mark of exactly this order."""
    return carries_mark(record.admin_comment, order.advice.key)


def held_by_us(record: JobRecord, order: ActOrder, *, sent: Sent) -> bool:
    """Whether the job stands still because of this order: such a job is never given up.

    A site's script may write over AdminComment just when the attempt ends: whoever sent the requeuehold knows its hold
    all the same.
    """
    if record.hold is not Hold.REQUEUED:
        return False
    wiped = sent is Sent.HOLD and record.restart_count == order.advice.attempt + 1
    return is_ours(record, order) or (wiped and not isinstance(read_marker(record.admin_comment), Marker))


def lacks_mark(record: JobRecord, order: ActOrder, *, sent: Sent) -> bool:
    """Whether our mark belongs on this pending job and is not there."""
    ours = record.hold is not Hold.NONE or (sent is not Sent.NOTHING and not _done_by_us(record, order))
    return ours and not is_ours(record, order)


def list_changes(record: JobRecord, order: ActOrder) -> dict[JobId, tuple[NodeName, ...]]:
    """Return the exclusion lists that are to be set, whole, by the id under which each is set; empty: none.

    The leader's id of a het job sets those of all components. Where they differ, that would wipe out what the user
    wants of each, so all but the leader's own are set one by one, and nothing is withdrawn from them.
    """
    if _has_lists_of_its_own(record):
        order = order.model_copy(update={"withdraw": ()})
        lists = {part.job_id: (part.excluded_nodes, part.required_nodes) for part in record.components[1:]}
    else:
        lists = {record.job_id: (record.excluded_nodes, record.required_nodes)}
    wanted = {job_id: order.wanted_exclusions(current, required) for job_id, (current, required) in lists.items()}
    return {job_id: nodes for job_id, nodes in wanted.items() if set(nodes) != set(lists[job_id][0])}


def _has_lists_of_its_own(record: JobRecord) -> bool:
    return len({frozenset(part.excluded_nodes) for part in record.components}) > 1


def _done_by_us(record: JobRecord, order: ActOrder) -> bool:
    marker = read_marker(record.admin_comment)
    return isinstance(marker, Account) and marker.did == order.advice.key


def _restart_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
    if not _same_job(record, order):
        return _abandoned("job_gone", record, now, "the job id now belongs to another job")
    if record.state is JobState.CANCELLED:
        return _abandoned("owner_cancelled", record, now)
    if record.state is JobState.UNKNOWN or JobFlag.COMPLETING in record.flags:
        return Step.WAIT
    if record.restart_count == order.advice.attempt and record.state is not JobState.PENDING:
        return _before_requeue(record, order, now)
    return _after_requeue(record, order, now, sent=sent)


def _before_requeue(record: JobRecord, order: ActOrder, now: datetime) -> Step | Reconciliation:
    if record.state is JobState.COMPLETED:
        return _abandoned("completed", record, now, "the attempt completed before it was touched")
    if kept := _kept_by_a_person(record):
        return _abandoned("person_intervened", record, now, kept)
    if now > order.advice.expires_at:
        return _abandoned("advice_expired", record, now)
    if not record.requeueable:
        # Slurm takes Requeue=1 only from a job that has not ended.
        if order.override_no_requeue and not record.state.ended:
            return Step.ALLOW_REQUEUE
        return _abandoned("not_requeueable", record, now, "the job was submitted with --no-requeue")
    if is_ours(record, order):
        return Step.WAIT if _spared(record, order, now) else Step.REQUEUE_HOLD
    return Step.REQUEUE if record.state.ended else Step.MARK


def _spared(record: JobRecord, order: ActOrder, now: datetime) -> bool:
    marker = read_marker(record.admin_comment)
    if record.state.ended or not isinstance(marker, Marker):
        return False
    return -CLOCK_SKEW <= now - marker.since < timedelta(seconds=order.spare_s)


def _after_requeue(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
    """The restart is there, ours or not. What is left: the exclusions while it is pending, and our own hold."""
    if record.state is not JobState.PENDING:
        return _converged(record, order, now)
    if record.hold is not Hold.NONE and not held_by_us(record, order, sent=sent):
        return _abandoned("person_intervened", record, now, f"the job is held ({record.reason}), and not by relight")
    if lacks_mark(record, order, sent=sent) or list_changes(record, order):
        return Step.CONSTRAIN
    if record.hold is Hold.REQUEUED:
        return Step.RELEASE
    if order.clear_delay and is_ours(record, order) and _delayed(record, now):
        return Step.START_NOW
    return _converged(record, order, now)


def _kept_by_a_person(record: JobRecord) -> str:
    """Say how a person keeps a job of which an attempt runs or has ended; empty when nobody does. A requeuehold would
    wipe that hold out, so it has to be seen before."""
    if record.hold is not Hold.NONE:
        return f"the job is held ({record.hold.value}), and not by relight"
    return "the job is suspended, and not by relight" if record.state is JobState.SUSPENDED else ""


def _stop_step(record: JobRecord, order: ActOrder, now: datetime, *, sent: Sent) -> Step | Reconciliation:
    if not _same_job(record, order):
        return _abandoned("job_gone", record, now, "the job id now belongs to another job")
    if record.state.ended:
        reason = "already_satisfied" if sent is Sent.NOTHING else "desired_state_observed"
        return _reconciled(Disposition.CONVERGED, reason, record, now)
    if record.restart_count > order.advice.attempt:
        return _abandoned("superseded", record, now, "a newer attempt is there already")
    if record.state is JobState.UNKNOWN or JobFlag.COMPLETING in record.flags:
        return Step.WAIT
    if order.advice.by == "policy" and (kept := _kept_by_a_person(record)):
        return _abandoned("person_intervened", record, now, kept)
    if now > order.advice.expires_at:
        return _abandoned("advice_expired", record, now)
    return Step.CANCEL


def _same_job(record: JobRecord, order: ActOrder) -> bool:
    ahead = record.restart_count - order.advice.attempt
    if ahead == 0:
        return record.submitted_at == order.submitted_at
    return ahead > 0 and record.submitted_at >= order.submitted_at


def _delayed(record: JobRecord, now: datetime) -> bool:
    return record.eligible_at is not None and record.eligible_at > now + timedelta(seconds=2)


def _converged(record: JobRecord, order: ActOrder, now: datetime) -> Reconciliation:
    missing = sorted(set(order.advice.exclude) - set(record.excluded_nodes))
    if missing:
        return _reconciled(
            Disposition.CONVERGED, "already_satisfied", record, now, _why_missing(missing, record, order)
        )
    ours = is_ours(record, order) or _done_by_us(record, order)
    reason = "desired_state_observed" if ours else "already_satisfied"
    return _reconciled(Disposition.CONVERGED, reason, record, now)


def _why_missing(missing: list[NodeName], record: JobRecord, order: ActOrder) -> str:
    if set(missing) <= set(record.required_nodes):
        return f"the job asks for {', '.join(missing)} by name"
    if set(missing) <= set(order.unable):
        return f"the scheduler refused to exclude {', '.join(missing)}"
    if _has_lists_of_its_own(record):
        return (
            "the components of this het job have exclusion lists of their own, and Slurm sets the first one's only"
            f" together with all others: that one may still get {', '.join(missing)}"
        )
    return f"the next attempt started before {', '.join(missing)} could be excluded"


def _abandoned(reason: str, record: JobRecord, now: datetime, detail: str = "") -> Reconciliation:
    return _reconciled(Disposition.ABANDONED, reason, record, now, detail)


def _reconciled(
    disposition: Disposition, reason: str, record: JobRecord, now: datetime, detail: str = ""
) -> Reconciliation:
    return Reconciliation(
        disposition=disposition,
        reason=reason,
        observed_at=now,
        restart_count=record.restart_count,
        excluded=record.excluded_nodes,
        submitted_at=record.submitted_at,
        eligible_at=record.eligible_at,
        detail=detail,
    )
