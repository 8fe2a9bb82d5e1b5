"""The watchdog process: every cluster looked at once per interval, whatever else is dead.

It needs no Temporal, no PostgreSQL and no worker. Its audit events go to the disk, and from there to PostgreSQL when
that answers; a release never waits for it.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import NoReturn

import structlog

from activities.audit_spool import AuditSpool
from activities.scheduler.protocol import Scheduler
from activities.scheduler.rounds import Round
from activities.scheduler.watchdog import Watchdog
from workers.schedulers import open_scheduler
from workers.settings import ClusterSettings, Settings

SPOOL = "watchdog-spool"
"""Below `Settings.state_dir`."""
DELIVER_EVERY_S = 10.0
LAST_DELIVERY_S = 15.0

log = structlog.get_logger(__name__)


async def look_once(settings: Settings) -> tuple[Round, ...]:
    """Look at every cluster once, and try to deliver what is on record."""
    spool = AuditSpool(settings.state_dir / SPOOL)
    rounds = await asyncio.gather(*(_look_once_at(cluster, spool) for cluster in settings.clusters))
    try:
        async with asyncio.timeout(LAST_DELIVERY_S):
            await AuditDelivery(settings, spool).deliver()
    except TimeoutError:
        log.warning("PostgreSQL is slow; the audit events stay on disk")
    return tuple(rounds)


async def keep_looking(settings: Settings) -> None:
    """Look at every cluster once per interval until cancelled."""
    spool = AuditSpool(settings.state_dir / SPOOL)
    async with asyncio.TaskGroup() as tasks:
        for cluster in settings.clusters:
            tasks.create_task(_keep_looking_at(cluster, spool))
        tasks.create_task(_keep_delivering(AuditDelivery(settings, spool)))


class AuditDelivery:
    """Takes events from the spool to PostgreSQL, when there is one."""

    def __init__(self, settings: Settings, spool: AuditSpool) -> None:
        self._dsn = settings.audit.dsn.get_secret_value()
        self._spool = spool
        self._away = False

    async def deliver(self) -> None:
        """Try once. Where PostgreSQL is away or not configured, everything stays on disk."""
        await self._spool.write_again()
        if not self._dsn or not self._spool.waiting():
            return
        # With it comes Temporal's client, which a watchdog without a database never needs.
        from activities.audit import AuditTrail, AuditUnavailable

        trail = AuditTrail(self._dsn)
        try:
            delivered = await self._spool.deliver(trail)
        except AuditUnavailable as error:
            if not self._away:
                log.warning("the audit events stay on disk", because=str(error))
            self._away = True
        except OSError as error:
            log.warning("the spool can't be read", because=str(error))
        else:
            log.info("delivered audit events", events=delivered)
            self._away = False
        finally:
            await trail.close()


async def _look_once_at(cluster: ClusterSettings, spool: AuditSpool) -> Round:
    async with open_scheduler(cluster) as scheduler:
        return await _watchdog(cluster, scheduler, spool).look()


async def _keep_looking_at(cluster: ClusterSettings, spool: AuditSpool) -> NoReturn:
    settings = cluster.watchdog
    log.info(
        "watching for holds of relight's",
        cluster=cluster.name,
        mode=settings.effective_mode.value,
        deadline_s=settings.deadline_s,
        interval_s=settings.interval_s,
    )
    if settings.effective_mode is not settings.mode:
        log.warning("mode act stays observe: watchdog.acknowledge_scheduler_actions is not set", cluster=cluster.name)
    async with open_scheduler(cluster) as scheduler:
        watchdog = _watchdog(cluster, scheduler, spool)
        while True:
            began_s = time.monotonic()
            await watchdog.look()
            await asyncio.sleep(max(0.0, settings.interval_s - (time.monotonic() - began_s)))


async def _keep_delivering(delivery: AuditDelivery) -> NoReturn:
    while True:
        try:
            await delivery.deliver()
        except Exception:  # whatever is wrong with the record keeps no job held
            log.exception("failed to deliver audit events")
        await asyncio.sleep(DELIVER_EVERY_S)


def _watchdog(cluster: ClusterSettings, scheduler: Scheduler, spool: AuditSpool) -> Watchdog:
    return Watchdog(
        scheduler,
        spool.record,
        cluster=cluster.name,
        mode=cluster.watchdog.effective_mode,
        deadline=timedelta(seconds=cluster.watchdog.deadline_s),
    )
