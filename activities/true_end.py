"""How a job ended that slurmctld has forgotten: accounting knows, where the site keeps it.

A job leaves slurmctld's memory MinJobAge after its end, and relight may have been away for longer. Without accounting,
or without its answer, the end stays unknown: that is never a failure.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity

from activities.findings import WatchOrder
from activities.scheduler.protocol import JobFlag, JobRecord, SchedulerError
from activities.scheduler.site import AccountedAttempt, AccountsReader

SAME_SUBMIT = timedelta(seconds=1)
"""Accounting and slurmctld may tell the submit time of an attempt a second apart."""


async def true_end(accounts: AccountsReader | None, order: WatchOrder) -> AccountedAttempt | None:
    """Return the attempt in which the job of `order` ended for good; None where nobody knows."""
    if accounts is None:
        return None
    try:
        attempts = await accounts.accounting(order.job.job_id)
    except SchedulerError as error:
        activity.logger.info("how the job ended is not known: %s", error)
        return None
    return last_of(attempts, order)


def last_of(attempts: tuple[AccountedAttempt, ...], order: WatchOrder) -> AccountedAttempt | None:
    """Return the last attempt of the watched job, when it has ended. Job ids are reused: what comes after an attempt
    that nobody requeued is another job."""
    ours = [number for number, attempt in enumerate(attempts) if _is_watched(attempt, order)]
    if len(ours) != 1:
        return None
    for attempt in attempts[ours[0] :]:
        if attempt.state.ended:
            return attempt
        if JobFlag.REQUEUED not in attempt.flags:
            return None
    return None


def _is_watched(attempt: AccountedAttempt, order: WatchOrder) -> bool:
    return abs(attempt.submitted_at - order.submitted_at) <= SAME_SUBMIT


def as_record(attempt: AccountedAttempt, seen: JobRecord | None, order: WatchOrder) -> JobRecord:
    """Return what slurmctld would tell of the job, were it still listed. `seen`: what it told last."""
    before = seen or JobRecord(
        job_id=attempt.job_id,
        job_number=attempt.job_number,
        name=attempt.name,
        user=attempt.user,
        partition=attempt.partition,
        state=attempt.state,
        restart_count=order.attempt,
        submitted_at=order.submitted_at,
        started_at=attempt.started_at,
        node_count=attempt.node_count,
        comment=attempt.comment,
        admin_comment=attempt.admin_comment,
    )
    end = {
        "state": attempt.state,
        "flags": attempt.flags,
        "reason": attempt.reason,
        "ended_at": attempt.ended_at,
        "nodes": attempt.nodes or before.nodes,
        "exit_code": attempt.exit_code,
        "exit_signal": attempt.exit_signal,
        "cancelled_by": attempt.cancelled_by,
    }
    return before.model_copy(update=end)


def in_words(attempt: AccountedAttempt) -> str:
    """Say how it ended, for people."""
    how = f"signal {attempt.exit_signal}" if attempt.exit_signal else f"exit code {attempt.exit_code}"
    at = f" at {attempt.ended_at:%Y-%m-%d %H:%M:%S} UTC" if attempt.ended_at else ""
    return f"by accounting it ended as {attempt.state.value} ({how}){at}"
