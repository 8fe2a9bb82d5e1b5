"""A job of a chain that is its own retry: what an advice asks for is done to the next job, and nothing is requeued."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.scheduler.successors import CONSTRAINED, ChainActs, SuccessorOrder
    from recovery.audit import AuditKind
    from recovery.model import Advice, Confidence, Disposition, Reconciliation
    from workflows.ledger import Ledger
    from workflows.options import act_options
    from workflows.state import Phase, RecoveryState
    from workflows.visibility import Window


class Successors:
    """The next jobs of one job's chain."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger, window: Window) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._window = window

    def answers(self, advice: Advice) -> bool:
        """Whether the job's chain answers `advice`, and not the job itself."""
        return self._start.optin.chain and advice.restarts

    def cannot_wait(self, advice: Advice) -> bool:
        """Whether the next job must be kept off the culprits now: once this one has ended, it starts within seconds."""
        verdict, terms = self._state.verdict, self._state.terms
        established = verdict is not None and verdict.confidence is Confidence.ESTABLISHED
        return self.answers(advice) and bool(advice.exclude) and established and not terms.approval

    async def constrain(self, advice: Advice, *, ahead: bool = False) -> Reconciliation:
        """Carry `advice` out on the next jobs, on record first. `ahead`: while this job still runs, and may yet get
        over its failure: what becomes of it is decided later."""
        state = self._state
        state.phase = Phase.ACTING
        self._window.show()
        what = f"keeping the next job of the chain off {', '.join(advice.exclude) or 'no node'}"
        self._ledger.tell(AuditKind.ORDERED, f"{advice.in_words}: {what}", who=advice.by, with_advice=True)
        await self._ledger.settle()
        seen = await self._carry_out(advice, ends_job=advice.kill_first and not ahead and not state.ended)
        if not ahead:
            state.reconciliation = seen
        text = f"{seen.disposition.value}, {seen.reason.replace('_', ' ')}"
        self._ledger.tell(
            AuditKind.RECONCILED,
            f"{text} ({seen.detail})" if seen.detail else text,
            at=seen.observed_at,
            with_advice=True,
        )
        state.phase = Phase.WATCHING
        return seen

    @staticmethod
    def came_to(seen: Reconciliation) -> str:
        """Why the job's own guard ends; empty: it does not."""
        if seen.disposition is Disposition.CONVERGED and seen.reason == CONSTRAINED:
            return f"its chain goes on: {seen.detail}"
        return ""

    async def _carry_out(self, advice: Advice, *, ends_job: bool) -> Reconciliation:
        start = self._start
        try:
            return await workflow.execute_activity_method(
                ChainActs.constrain_successors,
                SuccessorOrder(advice=advice, job=start.record, ends_job=ends_job),
                summary=f"keep the next job of the chain off {', '.join(advice.exclude) or 'no node'}",
                **act_options(start.job.cluster),
            )
        except ActivityError as error:
            return Reconciliation.unanswered(workflow.now(), f"look at the chain's next job by hand: {error.cause}")
