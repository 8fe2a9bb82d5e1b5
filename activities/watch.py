"""The watch of one attempt as a Temporal activity: how often it looks, what its heartbeats keep, when it ends.

One long activity per attempt. It is read only: two of them may run at once, and a lost one costs nothing but the time
until the next reads on from the last heartbeat.
"""

from __future__ import annotations

import asyncio
import random

from pydantic import ValidationError
from temporalio import activity

from activities.attempt_watch import BLIND_AFTER_S, AttemptWatch, WatchMemory
from activities.findings import Finding, LeaseOver, WatchOrder
from activities.heartbeats import hand_over_on_shutdown
from activities.logs.protocol import LogSource
from activities.scheduler.protocol import JobReader
from activities.scheduler.site import AccountsReader
from activities.snapshot import ClusterSnapshots
from recovery.detection.monitor import AttemptMonitor, Matcher
from recovery.detection.settings import DetectionSettings

HEARTBEAT_S = 5.0
LOG_POLL_S = 0.4


class Watcher:
    """Watches attempts of one cluster, as a Temporal activity."""

    def __init__(
        self,
        snapshots: ClusterSnapshots,
        scheduler: JobReader,
        logs: LogSource,
        match: Matcher,
        settings: DetectionSettings,
        *,
        lease_s: float,
        blind_after_s: float = BLIND_AFTER_S,
        accounts: AccountsReader | None = None,
    ) -> None:
        """`accounts`: who tells how a job ended that the scheduler has forgotten; None: nobody does."""
        self._snapshots = snapshots
        self._scheduler = scheduler
        self._logs = logs
        self._match = match
        self._settings = settings
        self._lease_s = lease_s
        self._blind_after_s = blind_after_s
        self._accounts = accounts
        self.blind_jobs = 0
        """How many of the jobs that are watched now are shown as blind."""

    @activity.defn
    async def watch_attempt(self, order: WatchOrder) -> Finding:
        """Watch until there is something to report, or the lease is over."""
        self.blind_jobs += order.blind_since is not None
        try:
            return await self._watch(order)
        finally:
            self.blind_jobs -= order.blind_since is not None

    async def _watch(self, order: WatchOrder) -> Finding:
        memory = _remembered(order)
        monitor = AttemptMonitor(_settings_for(order, self._settings), self._match, memory.monitor)
        watch = AttemptWatch(
            order,
            memory,
            monitor,
            self._logs,
            self._scheduler,
            self._snapshots,
            blind_after_s=self._blind_after_s,
            accounts=self._accounts,
        )
        loop = asyncio.get_running_loop()
        lease_end = loop.time() + self._lease_s * random.uniform(0.9, 1.1)  # noqa: S311 - spreads leases, no secret
        beat_at = 0.0
        while loop.time() < lease_end:
            if (finding := await watch.look()) is not None:
                return finding
            if loop.time() >= beat_at:
                activity.heartbeat(watch.memory().model_dump(mode="json"))
                beat_at = loop.time() + HEARTBEAT_S
            await _pause(LOG_POLL_S if watch.running else min(self._snapshots.interval_s, HEARTBEAT_S))
        return LeaseOver(**watch.report())


def _remembered(order: WatchOrder) -> WatchMemory:
    """What the last worker's heartbeat kept, else what the order says."""
    beats = activity.info().heartbeat_details
    if beats:
        try:
            return WatchMemory.model_validate(beats[0])
        except ValidationError as error:
            # Another version of relight wrote it: the order tells of the same attempt, from further back.
            activity.logger.warning("the last heartbeat can't be read: %s", error)
    return WatchMemory(monitor=order.monitor, began=order.began, logs=order.logs)


def _settings_for(order: WatchOrder, settings: DetectionSettings) -> DetectionSettings:
    """The operator's settings with what the job asks for. A progress pattern that can't be used is left out."""
    hang_after_s, pattern = order.optin.hang_after_s, order.optin.progress_pattern
    try:
        return settings.for_job(hang_after_s=hang_after_s, progress_pattern=pattern)
    except ValueError as error:
        activity.logger.warning("%s; the job is watched without it", error)
        return settings.for_job(hang_after_s=hang_after_s, progress_pattern=None)


async def _pause(seconds: float) -> None:
    """Sleep, but leave at once when the worker shuts down."""
    try:
        async with asyncio.timeout(seconds):
            await activity.wait_for_worker_shutdown()
    except TimeoutError:
        return
    hand_over_on_shutdown()
