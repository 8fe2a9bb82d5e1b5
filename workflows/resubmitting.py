"""A job that can't be requeued is submitted anew, where the operator's policy allows it: the last resort of an act."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.scheduler.resubmission import ResubmitOrder
    from activities.scheduler.resubmit import Resubmitter
    from activities.scheduler.steps import ActOrder
    from recovery.audit import AuditKind
    from recovery.model import Disposition, Reconciliation
    from workflows.ledger import Ledger
    from workflows.options import act_options
    from workflows.state import RecoveryState

ANSWERED_BY_ANOTHER_JOB = ("not_requeueable", "not_offered", "job_gone")
"""Reasons of an abandoned restart that another job in the place of this one answers."""


class Resubmitting:
    """Resubmission over the state of one job's workflow."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger

    async def instead(self, order: ActOrder, seen: Reconciliation) -> Reconciliation:
        """Return what became of `order`, which came to `seen`, once a job was submitted in the place of this one; where
        that is not called for or can't be, `seen` with the reason."""
        advice = order.advice
        abandoned = seen.disposition is Disposition.ABANDONED and seen.reason in ANSWERED_BY_ANOTHER_JOB
        if not (abandoned and advice.restarts and self._state.terms.resubmit):
            return seen
        if self._start.inherited.lost:
            return _with(seen, "not submitted anew: how its predecessors fared is not known any more")
        why = seen.detail or seen.reason.replace("_", " ")
        self._ledger.tell(AuditKind.ORDERED, f"submitting it anew, since {why}", who=advice.by, with_advice=True)
        await self._ledger.settle()
        came_to = await self._submit_anew(order)
        if came_to.reason == "not_submitted":
            return _with(seen, f"not submitted anew: {came_to.detail}")
        self._state.resubmitted_as = came_to.resubmitted_as
        return came_to

    async def _submit_anew(self, order: ActOrder) -> Reconciliation:
        start, now = self._start, workflow.now()
        job = start.record.model_copy(
            update={"submitted_at": order.submitted_at, "excluded_nodes": self._state.user_excluded}
        )
        again = ResubmitOrder(
            advice=order.advice,
            job=job,
            optin=start.optin,
            count=start.inherited.resubmissions + 1,
            withdraw=order.withdraw,
            ordered_at=now,
        )
        try:
            return await workflow.execute_activity_method(
                Resubmitter.submit_anew,
                again,
                summary=f"submit another job for attempt {order.advice.attempt}",
                **act_options(start.job.cluster),
            )
        except ActivityError as error:
            return Reconciliation.unanswered(
                workflow.now(), f"look for another job of this name by hand: {error.cause}"
            )


def _with(seen: Reconciliation, detail: str) -> Reconciliation:
    return seen.model_copy(update={"detail": "; ".join(filter(None, (seen.detail, detail)))[:500]})
