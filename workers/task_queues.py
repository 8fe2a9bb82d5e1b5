"""The Temporal worker of each task queue: how much it does at a time, and how long it is waited for.

What is read only has thousands of slots, what acts has few, and none of them waits behind the others.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from workflows.cluster import ClusterWatch
from workflows.job import JobRecovery
from workflows.options import CLUSTERS_QUEUE, act_queue, opinion_queue, recovery_queue, watch_queue

Activities = Sequence[Callable[..., Any]]

WATCH_SLOTS = 5_000
WORKFLOW_CACHE = 5_000
WORKFLOW_SLOTS = 20
"""Workflow tasks at a time. Many more of them would each take so long that Temporal gives them to somebody else."""
RECOVERY_SLOTS = 200
"""Activities at a time beside the watches and the acts. Most of them wait for an answer; what takes memory and time in
an attribution has a bound of its own."""
OPINION_SLOTS = 20
"""Second opinions that are waited for at a time; each holds an attempt's lines in memory."""
WATCH_HEARTBEAT_THROTTLE = timedelta(seconds=20)
ACT_HEARTBEAT_THROTTLE = timedelta(seconds=3)
SHUTDOWN_GRACE = timedelta(seconds=20)
BUILD_ID = f"relight-{importlib.metadata.version('relight')}"
"""Without one of ours Temporal reads and hashes every loaded module at each start: half of the time that takes."""
STICKY_TIMEOUT = timedelta(seconds=10)
"""How long a workflow waits for the worker that has it in memory before any takes it up. Temporal itself gives a worker
up of which it has heard nothing for so long. Shorter, and in a storm of failures those at its end would be taken away
from a worker that is only busy, and be read anew from their histories."""
ACT_SLOTS = 20
WORKFLOW_POLLS = 10
SHARE_OF_NEW = 0.5
"""Of the polls, for workflows that no worker has in memory. With the default of a fifth those wait, in a storm, until
all others are through."""


def clusters_worker(client: Client, activities: Activities) -> Worker:
    """Return the worker of the clusters' own workflows."""
    return Worker(
        client,
        build_id=BUILD_ID,
        task_queue=CLUSTERS_QUEUE,
        workflows=[ClusterWatch],
        workflow_runner=UnsandboxedWorkflowRunner(),
        activities=activities,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=SHUTDOWN_GRACE,
    )


def watch_worker(client: Client, cluster: str, activities: Activities) -> Worker:
    """Return the worker of the watches of `cluster`."""
    return Worker(
        client,
        build_id=BUILD_ID,
        task_queue=watch_queue(cluster),
        activities=activities,
        max_concurrent_activities=WATCH_SLOTS,
        max_heartbeat_throttle_interval=WATCH_HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=SHUTDOWN_GRACE,
    )


def recovery_worker(client: Client, cluster: str, activities: Activities) -> Worker:
    """Return the worker of the jobs' workflows of `cluster`, and of most that they order."""
    return Worker(
        client,
        build_id=BUILD_ID,
        task_queue=recovery_queue(cluster),
        workflows=[JobRecovery],
        # The sandbox is entered anew for every payload, a quarter of the worker's time in a storm. What it would find
        # is found by the tests, all of which run the workflows in the strictest one, and by the replays.
        workflow_runner=UnsandboxedWorkflowRunner(),
        activities=activities,
        max_cached_workflows=WORKFLOW_CACHE,
        max_concurrent_workflow_tasks=WORKFLOW_SLOTS,
        max_concurrent_workflow_task_polls=WORKFLOW_POLLS,
        nonsticky_to_sticky_poll_ratio=SHARE_OF_NEW,
        max_concurrent_activities=RECOVERY_SLOTS,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=SHUTDOWN_GRACE,
    )


def act_worker(client: Client, cluster: str, activities: Activities) -> Worker:
    """Return the worker of the acts on `cluster`."""
    return Worker(
        client,
        build_id=BUILD_ID,
        task_queue=act_queue(cluster),
        activities=activities,
        max_concurrent_activities=ACT_SLOTS,
        max_heartbeat_throttle_interval=ACT_HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=SHUTDOWN_GRACE,
    )


def opinion_worker(client: Client, cluster: str, activities: Activities) -> Worker:
    """Return the worker that listens to the attribution service of `cluster`."""
    return Worker(
        client,
        build_id=BUILD_ID,
        task_queue=opinion_queue(cluster),
        activities=activities,
        max_concurrent_activities=OPINION_SLOTS,
        # It would wait for minutes; the next worker asks again.
        graceful_shutdown_timeout=timedelta(),
    )
