"""The audit trails of one run's jobs, from PostgreSQL."""

from __future__ import annotations

from activities.audit import AuditTrail
from activities.scheduler.watchdog_ledger import WHO as WATCHDOG
from recovery.audit import AuditEvent
from recovery.model import JobId

PAGE = 1_000


class Trails:
    """Reads them; raises `activities.audit.AuditUnavailable`."""

    def __init__(self, trail: AuditTrail, cluster: str) -> None:
        self._trail = trail
        self._cluster = cluster

    async def of_job(self, job_id: JobId) -> tuple[AuditEvent, ...]:
        """Return all events of the job: the workflows' in the order in which they were told, then the watchdog's."""
        events: list[AuditEvent] = []
        after = None
        while True:
            page = await self._trail.events_of_job(self._cluster, job_id, after=after, limit=PAGE)
            events += page.events
            if (after := page.next) is None:
                return tuple(sorted(events, key=_order))

    async def close(self) -> None:
        """Close all connections."""
        await self._trail.close()


def _order(event: AuditEvent) -> tuple[bool, str, int, float]:
    guard, _, number = event.key.rpartition("/")
    if event.who == WATCHDOG:
        return True, "", 0, event.at.timestamp()
    return False, guard, int(number), 0.0
