"""How soon a recovery that a worker's death interrupted was done, once a worker served again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from recovery.audit import AuditKind
from tests.chaos.records import JobHistory, Outage, Party


def completions_s(job: JobHistory, outages: Sequence[Outage]) -> Iterator[float]:
    """Yield, for each order of `job` during which a worker was killed, the seconds from the last return of one to the
    outcome; 0 where another worker had it done before. What the other parties' outages lengthened is left out."""
    deaths = [outage for outage in outages if outage.party is Party.WORKER and outage.fatal]
    others = [outage for outage in outages if outage.party in (Party.TEMPORAL, Party.POSTGRES, Party.SCHEDULER)]
    for ordered_at, done_at in _orders(job):
        returns = [death.until for death in deaths if ordered_at <= death.since < done_at]
        if not returns:
            continue
        began = max(returns)
        if not any(other.since < done_at and other.until > began for other in others):
            yield max(0.0, (done_at - began).total_seconds())


def _orders(job: JobHistory) -> Iterable[tuple[datetime, datetime]]:
    ordered_at: dict[str, datetime] = {}
    for event in job.events:
        if event.advice is None:
            continue
        if event.kind is AuditKind.ORDERED:
            ordered_at[event.advice.key] = event.at
        elif event.kind is AuditKind.RECONCILED and event.advice.key in ordered_at:
            yield ordered_at.pop(event.advice.key), event.at
