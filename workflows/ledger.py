"""What a workflow tells: its timeline, its milestones, and the audit events that are on their way to the trail.

Recovery never waits for the trail beyond a short grace: the events are durable in the workflow's history and state, and
delivery goes on beside the main loop until PostgreSQL is back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from pydantic import JsonValue

    from activities.adopt import RecoveryStart
    from activities.audit import AuditActivities
    from recovery.audit import AuditEvent, AuditKind
    from recovery.model import Milestone, MilestoneKind
    from workflows.options import audit_options
    from workflows.state import RecoveryState

BEFORE_ACT_GRACE = timedelta(seconds=2)
"""How long an act waits for its events to be stored."""
MAX_BATCH = 20
MAX_MILESTONES = 200


class Ledger:
    """Writes into the state what is told, and delivers its audit events in order, one batch at a time."""

    def __init__(self, start: RecoveryStart, state: RecoveryState) -> None:
        self._start = start
        self._state = state
        self._gathering = 0

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is told while the context is open, and right after it, goes in one delivery: when hundreds of jobs fail
        at once, each delivery of its own would keep all advice waiting. Whoever opens it has a deadline."""
        self._gathering += 1
        try:
            yield
        finally:
            self._gathering -= 1

    def tell(
        self,
        kind: AuditKind,
        summary: str,
        *,
        who: str = "policy",
        at: datetime | None = None,
        details: dict[str, JsonValue] | None = None,
        with_advice: bool = False,
    ) -> None:
        """Put one event on record: a line of the timeline and an audit event with the state it belongs to."""
        state, job = self._state, self._start.job
        when = at or workflow.now()
        state.note(when, summary, kind=kind.value, who="" if who == "policy" else who)
        state.audit_count += 1
        event = AuditEvent(
            key=f"{job.workflow_id}@{int(job.submitted_at.timestamp())}/{state.audit_count}",
            at=when,
            job=job,
            attempt=state.attempt,
            kind=kind,
            who=who,
            summary=summary,
            mode=state.mode(self._start.optin),
            symptom=state.symptom if kind is AuditKind.DETECTED else None,
            verdict=state.verdict if kind is AuditKind.ATTRIBUTED else None,
            advice=state.advice if with_advice else None,
            reconciliation=state.reconciliation if kind is AuditKind.RECONCILED else None,
            details=details or {},
        )
        state.unaudited = (*state.unaudited, event)

    def note(self, text: str) -> None:
        """Add a line to the timeline that is no event of its own."""
        self._state.note(workflow.now(), text)

    def reach(self, kind: MilestoneKind, *, at: datetime, detail: str = "") -> None:
        """Record a milestone of the current attempt. Observed at or ordered by time, never twice."""
        state = self._state
        if self.reached(kind):
            return
        milestone = Milestone(kind=kind, attempt=state.attempt, at=at, detail=detail[:200])
        state.milestones = (*state.milestones, milestone)[-MAX_MILESTONES:]

    def reached(self, kind: MilestoneKind) -> bool:
        """Whether the current attempt has this milestone."""
        attempt = self._state.attempt
        return any(milestone.kind is kind and milestone.attempt == attempt for milestone in self._state.milestones)

    def forget(self, kinds: Collection[MilestoneKind]) -> None:
        """Take milestones of the current attempt back: they led to nothing, and the next failure has its own."""
        attempt = self._state.attempt
        self._state.milestones = tuple(
            milestone
            for milestone in self._state.milestones
            if milestone.attempt != attempt or milestone.kind not in kinds
        )

    async def deliver_forever(self) -> None:
        """Deliver events beside the main loop, until cancelled."""
        while True:
            await workflow.wait_condition(lambda: bool(self._state.unaudited) and not self._gathering)
            batch = self._state.unaudited[:MAX_BATCH]
            try:
                await workflow.execute_activity_method(
                    AuditActivities.record_audit,
                    list(batch),
                    summary="audit: " + ", ".join(event.kind.value for event in batch),
                    **audit_options(self._start.job.cluster),
                )
            except ActivityError:
                # One delivery's bound is over: its events stay and the next delivery takes them again.
                workflow.logger.warning("the audit trail took nothing for a day; %d events wait", len(batch))
                continue
            self._state.unaudited = self._state.unaudited[len(batch) :]

    async def settle(self, grace: timedelta | None = BEFORE_ACT_GRACE) -> None:
        """Wait until all events are stored, for `grace` at most; None waits until they are."""
        try:
            await workflow.wait_condition(
                lambda: not self._state.unaudited, timeout=grace, timeout_summary="grace for the audit trail"
            )
        except TimeoutError:
            workflow.logger.warning("going on before %d audit events are stored", len(self._state.unaudited))
