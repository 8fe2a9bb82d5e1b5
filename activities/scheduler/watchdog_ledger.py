"""What the watchdog puts on record of a hold: what it is about to do, what it did, what a fresh look showed then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

import structlog

from activities.scheduler.overdue import OurHold
from activities.scheduler.protocol import JobRecord
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Disposition, Mode, Reconciliation

WHO = "watchdog"

log = structlog.get_logger(__name__)


class WatchdogLedger:
    """Tells of each hold once, however many rounds it takes."""

    def __init__(
        self,
        record: Callable[[AuditEvent], Awaitable[None]],
        *,
        cluster: str,
        mode: Mode,
        deadline: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        """`record` puts an audit event where it is safe. It must neither raise nor wait for long."""
        self._record = record
        self._cluster = cluster
        self._mode = mode
        self._deadline = deadline
        self._clock = clock
        self._told: set[tuple[str, AuditKind]] = set()

    async def tell(
        self, kind: AuditKind, hold: OurHold, summary: str, reconciliation: Reconciliation | None = None
    ) -> None:
        """Put it on record, unless it is."""
        if (hold.key, kind) in self._told:
            return
        self._told.add((hold.key, kind))
        log.warning(summary, cluster=self._cluster, job=hold.job.job_id, advice=hold.advice_key, why=hold.why)
        await self._record(
            AuditEvent(
                key=f"{WHO}/{hold.key}/{kind.value}",
                at=self._clock(),
                job=hold.job,
                attempt=hold.attempt,
                kind=kind,
                who=WHO,
                summary=summary,
                mode=self._mode,
                reconciliation=reconciliation,
                details={"advice": hold.advice_key, "deadline_s": self._deadline.total_seconds()},
            )
        )

    async def tell_outcome(self, hold: OurHold, record: JobRecord | None, detail: str) -> None:
        """Put on record how the job is after its release. None: it is gone."""
        gone = record is None
        reconciliation = Reconciliation(
            disposition=Disposition.ABANDONED if gone else Disposition.CONVERGED,
            reason="job_gone" if gone else "desired_state_observed",
            observed_at=self._clock(),
            restart_count=record.restart_count if record else hold.restart_count,
            excluded=record.excluded_nodes if record else (),
            submitted_at=record.submitted_at if record else None,
            eligible_at=record.eligible_at if record else None,
            detail=detail[:500],
        )
        what = "the job is gone" if gone else "the job is no longer held by relight"
        await self.tell(AuditKind.RECONCILED, hold, what, reconciliation)

    def forget_all_but(self, keys: Iterable[str]) -> None:
        """Forget what was told of all other holds."""
        kept = set(keys)
        self._told = {(key, kind) for key, kind in self._told if key in kept}
