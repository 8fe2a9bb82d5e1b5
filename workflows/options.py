"""Time limits and retries of every activity, and the task queues: one place to read them all."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy

CLUSTERS_QUEUE = "recovery"
"""The clusters' workflows: their word is waited for by all jobs, and never waits behind those. Messages to people."""


def recovery_queue(cluster: str) -> str:
    """The queue of the job workflows of `cluster` and of most that they order: attribution, decisions, the audit trail.
    What is on a workflow's own queue begins in the very transaction in which it is ordered."""
    return f"recovery-{cluster}"


def watch_queue(cluster: str) -> str:
    """The queue of the watches of `cluster`: thousands of slots, read only."""
    return f"watch-{cluster}"


def act_queue(cluster: str) -> str:
    """The queue of the acts on `cluster`: few slots, never starved by watches."""
    return f"slurm-{cluster}"


def opinion_queue(cluster: str) -> str:
    """The queue of second opinions: they take minutes, and nothing else waits behind them."""
    return f"opinion-{cluster}"


class ActivityOptions(TypedDict, total=False):
    """The part of Temporal's activity options that is set here."""

    task_queue: str
    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    priority: Priority
    cancellation_type: workflow.ActivityCancellationType


WATCH_LEASE = timedelta(hours=12)
"""How long one watch lasts at most: a healthy job costs a handful of history events a lease, and new code and settings
reach every job within one."""

ATTRIBUTION_DEADLINE = timedelta(seconds=20)
"""After this the decision is made without a verdict."""

DECISION_DEADLINE = timedelta(seconds=20)
"""After this the fallback goes through: a plain requeue without exclusions."""

EVIDENCE_DEADLINE = timedelta(seconds=60)
"""After this an attempt is killed without any."""


def audit_options(cluster: str) -> ActivityOptions:
    """Events are delivered until PostgreSQL takes them, for a day at a time."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=30),
        schedule_to_close_timeout=timedelta(days=1),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)),
        priority=Priority(priority_key=4),
    )


def attribute_options(cluster: str) -> ActivityOptions:
    """Attribution gets a few tries inside its deadline; the decision does not wait longer."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=15),
        schedule_to_close_timeout=ATTRIBUTION_DEADLINE,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3),
        priority=Priority(priority_key=2),
    )


def decide_options(cluster: str) -> ActivityOptions:
    """A decision is pure: it is late only when no worker is there, or all are busy."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=10),
        schedule_to_close_timeout=DECISION_DEADLINE,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
        priority=Priority(priority_key=2),
    )


ASK_DEADLINE = timedelta(seconds=60)
"""After this an act is kept back for now: without the governor's word nothing is done."""


def ask_options(cluster: str) -> ActivityOptions:
    """To ask the governor is quick, and comes before the next attribution; it must not wait behind acts."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=10),
        schedule_to_close_timeout=ASK_DEADLINE,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=3)),
        priority=Priority(priority_key=1),
    )


COMPARE_DEADLINE = timedelta(seconds=15)
"""After this a task of an array is decided on without a view of its siblings."""


def compare_options(cluster: str) -> ActivityOptions:
    """A look at the cluster's workflow and at a reading that is there already."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=8),
        schedule_to_close_timeout=COMPARE_DEADLINE,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_attempts=5),
        priority=Priority(priority_key=2),
    )


def chain_options(cluster: str) -> ActivityOptions:
    """The next reading of the scheduler tells: nothing hangs on it, and nobody waits for it for long."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=20),
        schedule_to_close_timeout=timedelta(seconds=40),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=2),
        priority=Priority(priority_key=4),
    )


NOTIFY_OPTIONS = ActivityOptions(
    task_queue=CLUSTERS_QUEUE,
    start_to_close_timeout=timedelta(seconds=15),
    schedule_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=2), maximum_attempts=5),
    priority=Priority(priority_key=5),
)


def opinion_options(cluster: str, listen_s: float) -> ActivityOptions:
    """A service is listened to for `listen_s`, and once more when a worker dies meanwhile. To read the attempt's lines
    takes some seconds before, and in a storm it is not everybody's turn at once."""
    return ActivityOptions(
        task_queue=opinion_queue(cluster),
        start_to_close_timeout=timedelta(seconds=listen_s + 60),
        schedule_to_close_timeout=timedelta(seconds=3 * listen_s + 120),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=2),
        priority=Priority(priority_key=5),
    )


def evidence_options(cluster: str) -> ActivityOptions:
    """The kill waits for evidence, but not for long."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=40),
        schedule_to_close_timeout=EVIDENCE_DEADLINE,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=2),
        priority=Priority(priority_key=1),
    )


def trace_options(cluster: str) -> ActivityOptions:
    """A trace that nobody takes is given up."""
    return ActivityOptions(
        task_queue=recovery_queue(cluster),
        start_to_close_timeout=timedelta(seconds=20),
        schedule_to_close_timeout=timedelta(minutes=5),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
        priority=Priority(priority_key=5),
    )


def watch_options(cluster: str) -> ActivityOptions:
    """A watch is read only: it may be tried again without limit inside its lease, and its loss costs nothing."""
    return ActivityOptions(
        task_queue=watch_queue(cluster),
        start_to_close_timeout=WATCH_LEASE + timedelta(hours=2),
        heartbeat_timeout=timedelta(seconds=20),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=15)),
        priority=Priority(priority_key=5),
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
    )


def act_options(cluster: str) -> ActivityOptions:
    """An act is repeated until Slurm shows the result: a job must never stay held because we gave up.

    A dead worker is noticed by its missing heartbeat; every step is decided from a fresh read, so that a command of the
    lost try that is still under way does no harm.
    """
    return ActivityOptions(
        task_queue=act_queue(cluster),
        start_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=timedelta(seconds=10),
        schedule_to_close_timeout=timedelta(days=7),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)),
        priority=Priority(priority_key=1),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
