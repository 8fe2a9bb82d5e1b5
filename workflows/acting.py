"""An advice carried out: on record, evidence first, one durable order, and what a fresh look at Slurm says of it.

There is a deadline for everything but the order itself, which is repeated until Slurm shows the result.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from pydantic import JsonValue

    from activities.adopt import RecoveryStart
    from activities.evidence import EvidenceKeeper, EvidenceOrder
    from activities.scheduler.requeue import SchedulerActs
    from activities.scheduler.steps import ActOrder
    from recovery.audit import AuditKind
    from recovery.detection.markers import Phase as TrainingPhase
    from recovery.model import Action, Advice, Disposition, Exclusion, MilestoneKind, Mode, NodeName, Reconciliation
    from workflows.ledger import Ledger
    from workflows.options import act_options, evidence_options
    from workflows.resubmitting import Resubmitting
    from workflows.state import Phase, RecoveryState
    from workflows.visibility import Window

EVIDENCE_FIRST = "evidence-before-kill"
"""Histories from before that was done go on without it."""


class Acting:
    """Acts over the state of one job's workflow."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger, window: Window) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._window = window
        self._resubmitting = Resubmitting(start, state, ledger)

    async def act(self, advice: Advice) -> Reconciliation:
        """Carry `advice` out: on record first, then by one durable order. Returns what a fresh look at Slurm says."""
        state = self._state
        state.phase = Phase.ACTING
        self._window.show()
        self._ledger.tell(AuditKind.ORDERED, f"carrying out: {advice.in_words}", who=advice.by, with_advice=True)
        await self._ledger.settle()
        if advice.kill_first and workflow.patched(EVIDENCE_FIRST):
            await self._keep_evidence(advice)
        order = self._order(advice)
        reconciliation = await self._resubmitting.instead(order, await self._carry_out(order))
        self._record_outcome(advice, reconciliation)
        state.phase = Phase.WATCHING
        return reconciliation

    async def let_back(self, nodes: tuple[NodeName, ...], *, by: str, reason: str) -> None:
        """Take our exclusion of `nodes` from the job while it waits in the queue, by the same durable order.

        The advice of the attempt before is given anew without them: whatever the job does meanwhile, an order for an
        attempt that is over changes nothing but the list of one that waits.
        """
        state, now = self._state, workflow.now()
        state.exclusions = tuple(each for each in state.exclusions if each.node not in nodes)
        state.readmitted = tuple(dict.fromkeys((*state.readmitted, *nodes)))
        exclude = tuple(each.node for each in state.exclusions)
        state.generation += 1
        advice = Advice(
            job=self._start.job,
            attempt=state.attempt - 1,
            generation=state.generation,
            action=Action.RESTART_EXCLUDE if exclude else Action.RESTART,
            exclude=exclude,
            reason=reason,
            rule="let_back",
            advised_at=now,
            expires_at=now + state.terms.advice_lifetime,
            by=by,
        )
        state.advice, state.reconciliation = advice, None
        what = f"withdrawing the exclusion of {', '.join(nodes)}: {reason}"
        self._ledger.tell(AuditKind.ORDERED, what, who=by, with_advice=True)
        await self._ledger.settle()
        seen = await self._carry_out(self._order(advice))
        self._tell_outcome(seen)
        if seen.disposition is Disposition.CONVERGED:
            self._keep_what_stands(advice, seen)

    def _order(self, advice: Advice) -> ActOrder:
        state = self._state
        return ActOrder(
            advice=advice,
            submitted_at=state.attempt_submitted_at,
            withdraw=self._withdrawn(advice),
            clear_delay=state.terms.clear_requeue_delay and not advice.keep_delay,
            override_no_requeue=state.terms.override_no_requeue,
            spare_s=self._spare_s(advice),
            by_its_comment=self._by_its_comment(advice),
        )

    def _by_its_comment(self, advice: Advice) -> bool:
        """Whether nobody but the job itself said that relight may act: no person ordered it, or set the mode."""
        asked = self._start.optin.mode is Mode.ACT
        return asked and advice.by == "policy" and self._state.mode_override is None

    def _spare_s(self, advice: Advice) -> float:
        """How long the attempt may go on because it writes a checkpoint."""
        writes = self._state.progress.phase == TrainingPhase.CHECKPOINT
        return self._state.terms.checkpoint_grace_s if advice.kill_first and writes else 0.0

    async def _keep_evidence(self, advice: Advice) -> None:
        """Copy what the kill destroys. Without an answer in time the attempt is killed all the same."""
        try:
            kept = await workflow.execute_activity_method(
                EvidenceKeeper.keep_evidence,
                EvidenceOrder(advice=advice, began=self._state.began),
                summary=f"evidence of attempt {advice.attempt}",
                **evidence_options(self._start.job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("no evidence in time: %s", error.cause)
            self._ledger.tell(AuditKind.EVIDENCE, "no evidence kept: no answer in time", who=advice.by)
            return
        details: dict[str, JsonValue] = {
            name: value for name in ("file", "host", "output", "stacks") if (value := getattr(kept, name))
        }
        self._ledger.tell(AuditKind.EVIDENCE, kept.summary, at=kept.kept_at, details=details, with_advice=True)

    async def _carry_out(self, order: ActOrder) -> Reconciliation:
        """Give the order. Without an answer for as long as acts are tried, what became of it is not known."""
        advice = order.advice
        try:
            return await workflow.execute_activity_method(
                SchedulerActs.carry_out,
                order,
                summary=f"{advice.action.value} for attempt {advice.attempt}",
                **act_options(self._start.job.cluster),
            )
        except ActivityError as error:
            return Reconciliation.unanswered(workflow.now(), f"look at the job by hand: {error.cause}")

    def _withdrawn(self, advice: Advice) -> tuple[NodeName, ...]:
        """Our own exclusions that the job need not keep. The user's stay, also where they are ours too."""
        state, kept = self._state, self._kept(advice)
        ours = dict.fromkeys((*(exclusion.node for exclusion in state.exclusions), *state.readmitted))
        return tuple(node for node in ours if node not in kept)

    def _kept(self, advice: Advice) -> set[NodeName]:
        """What the job is kept off in any case: for the advice, or because its user wants that."""
        return {*advice.exclude, *self._state.user_excluded}

    def _record_outcome(self, advice: Advice, seen: Reconciliation) -> None:
        self._tell_outcome(seen)
        if seen.disposition is not Disposition.CONVERGED:
            return
        self._ledger.reach(MilestoneKind.ACTED, at=seen.observed_at, detail=seen.reason)
        if advice.restarts:
            eligible = max(seen.observed_at, seen.eligible_at or seen.observed_at)
            self._ledger.reach(MilestoneKind.ELIGIBLE, at=eligible)
            self._keep_what_stands(advice, seen)

    def _tell_outcome(self, seen: Reconciliation) -> None:
        self._state.reconciliation = seen
        what = f"{seen.disposition.value}, {seen.reason.replace('_', ' ')}"
        if seen.resubmitted_as:
            what += f"; resubmitted as {seen.resubmitted_as}"
        if seen.excluded:
            what += f"; the job now avoids {', '.join(seen.excluded)}"
        if seen.detail:
            what += f" ({seen.detail})"
        self._ledger.tell(AuditKind.RECONCILED, what, at=seen.observed_at, with_advice=True)

    def _keep_what_stands(self, advice: Advice, seen: Reconciliation) -> None:
        """Know of the exclusions what a fresh look showed."""
        state = self._state
        state.exclusions = self._exclusions(advice, seen)
        kept = self._kept(advice)
        state.readmitted = tuple(node for node in state.readmitted if node in seen.excluded and node not in kept)

    def _exclusions(self, advice: Advice, seen: Reconciliation) -> tuple[Exclusion, ...]:
        """The exclusions that are ours and that a fresh look showed in place."""
        known = {exclusion.node: exclusion for exclusion in self._state.exclusions}
        until = seen.observed_at + timedelta(hours=self._state.terms.exclusion_hours)
        return tuple(
            known.get(node)
            or Exclusion(node=node, by=advice.by, reason=advice.reason[:200], since=seen.observed_at, until=until)
            for node in advice.exclude
            if node in seen.excluded
        )


def may_act(state: RecoveryState, start: RecoveryStart, advice: Advice) -> bool:
    """Whether the mode in force lets `advice` touch the scheduler, and the advice asks for it."""
    asks = advice.restarts or advice.action is Action.STOP
    return asks and state.mode(start.optin) is Mode.ACT
