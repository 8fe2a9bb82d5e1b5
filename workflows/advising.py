"""From a failure to the advice on it: attribute -> decide -> advise, on record.

Both answers have a deadline. When attribution or the decision is late, the fallback goes through: a plain requeue
without exclusions; nothing waits for ever because of us.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.assess import Assessor
    from activities.assessment import AttributeOrder, Attribution, Background, Decided, situation_of
    from activities.findings import Faulted, Requeued, Slowed, Stalled
    from recovery.audit import AuditKind
    from recovery.model import Action, Advice, MilestoneKind, Verdict
    from recovery.policy import Decision, Ending, Situation
    from workflows.failure import Failure, allocation_of, established_by, is_certain, symptom_of, unattributed
    from workflows.ledger import Ledger
    from workflows.options import attribute_options, decide_options
    from workflows.second_opinion import Listening
    from workflows.siblings import Siblings
    from workflows.state import Phase, RecoveryState

MAX_FALLBACKS = 3
"""Plain requeues in a row without a decision; with every worker of the policy gone they would go on for ever."""


class Advising:
    """Advice over the state of one job's workflow."""

    def __init__(
        self, start: RecoveryStart, state: RecoveryState, ledger: Ledger, siblings: Siblings, listening: Listening
    ) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._siblings = siblings
        self._listening = listening

    async def advise(self, failure: Failure) -> Advice:
        """Attribute and decide; the advice is on record, with all that led to it, before this returns."""
        with self._ledger.gathering():
            return await self._advise(failure)

    async def _advise(self, failure: Failure) -> Advice:
        state = self._state
        state.phase = Phase.ATTRIBUTING
        state.symptom = symptom_of(failure)
        self._ledger.reach(MilestoneKind.DETECTED, at=failure.at, detail=state.symptom.kind.value)
        self._ledger.tell(AuditKind.DETECTED, state.symptom.summary, at=failure.at)
        order = self._order(failure)
        attribution = await self._attribute(order, failure)
        state.verdict = attribution.verdict
        state.usable_nodes = None if attribution.usable_nodes is None else len(attribution.usable_nodes)
        self._ledger.reach(MilestoneKind.ATTRIBUTED, at=attribution.attributed_at, detail=attribution.verdict.cause)
        self._ledger.tell(AuditKind.ATTRIBUTED, _verdict_line(attribution.verdict), at=attribution.attributed_at)
        self._listening.hear_at_once(order, attribution)
        decided = await self._decide(order, failure, attribution)
        state.terms = decided.terms
        state.advice = self._advice(decided, failure)
        state.reconciliation = None
        self._ledger.reach(MilestoneKind.ADVISED, at=state.advice.advised_at, detail=state.advice.action.value)
        why = f"{state.advice.reason} (rule {state.advice.rule})"
        text = f"{state.advice.in_words}: {why}"
        self._ledger.tell(AuditKind.ADVISED, text, at=state.advice.advised_at, with_advice=True)
        if not isinstance(failure, Slowed):
            self._listening.ask_about(order, attribution, state.advice)
        state.phase = Phase.WATCHING
        return state.advice

    async def _attribute(self, order: AttributeOrder, failure: Failure) -> Attribution:
        try:
            return await workflow.execute_activity_method(
                Assessor.attribute,
                order,
                summary=f"attribute attempt {self._state.attempt}",
                **attribute_options(self._start.job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("attribution gave no answer in time: %s", error.cause)
            return unattributed(failure)

    def _order(self, failure: Failure) -> AttributeOrder:
        state = self._state
        return AttributeOrder(
            job=self._start.job,
            attempt=state.attempt,
            record=failure.record,
            requeued=isinstance(failure, Requeued),
            symptom=established_by(failure),
            nodes=allocation_of(failure) or state.nodes,
            began=state.began,
            ended=failure.ends if isinstance(failure, Requeued) or is_certain(failure) else (),
            progress=failure.progress,
            background=Background(
                optin=self._start.optin,
                past=state.past,
                exclusions=state.exclusions,
                user_excluded=state.user_excluded,
                opinion=state.opinion if state.opinion_final else None,
            ),
            decide_too=not (self._siblings.has_any and is_certain(failure)),
        )

    async def _decide(self, order: AttributeOrder, failure: Failure, attribution: Attribution) -> Decided:
        """Decide what the attribution left to be decided."""
        if attribution.decided is not None:
            self._state.fallbacks = 0
            return attribution.decided
        array = await self._siblings.standing(attribution.verdict) if is_certain(failure) else None
        return await self._decide_apart(situation_of(order, attribution, now=workflow.now(), array=array))

    async def _decide_apart(self, situation: Situation) -> Decided:
        state = self._state
        try:
            decided = await workflow.execute_activity_method(
                Assessor.decide,
                situation,
                summary=f"decide on attempt {state.attempt}",
                **decide_options(self._start.job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("the policy gave no answer in time: %s", error.cause)
            state.fallbacks += 1
            decision = _fallback(situation.ending, state)
            return Decided(decision=decision, terms=state.terms, decided_at=workflow.now())
        state.fallbacks = 0
        return decided

    def _advice(self, decided: Decided, failure: Failure) -> Advice:
        state, decision = self._state, decided.decision
        state.generation += 1
        return Advice(
            job=self._start.job,
            attempt=state.attempt,
            generation=state.generation,
            action=decision.action,
            exclude=decision.exclude,
            reason=decision.reason,
            rule=decision.rule,
            advised_at=decided.decided_at,
            expires_at=decided.decided_at + decided.terms.advice_lifetime,
            kill_first=isinstance(failure, Faulted | Stalled),
            keep_delay=decision.keep_delay,
        )


def _verdict_line(verdict: Verdict) -> str:
    where = f"culprit {', '.join(verdict.culprits)}, " if verdict.culprits else ""
    return f"{verdict.summary or verdict.cause} ({verdict.category.value}, {where}{verdict.confidence.value})"


def _fallback(ending: Ending, state: RecoveryState) -> Decision:
    """What goes through when the policy is late. Never against a person's word, not for ever, and no exclusion is added
    or withdrawn."""
    if ending.state in ("CANCELLED", "COMPLETED") or ending.requeued:
        return Decision(action=Action.NONE, rule="fallback", reason="the policy was late and nothing is owed")
    if ending.exit_code == state.terms.no_requeue_exit_code or state.fallbacks > MAX_FALLBACKS:
        return Decision(action=Action.NONE, rule="fallback", reason="the policy was late: no further blind requeue")
    return Decision(
        action=Action.RESTART,
        rule="fallback",
        reason="the policy was late: a plain requeue",
        exclude=tuple(exclusion.node for exclusion in state.exclusions),
    )
