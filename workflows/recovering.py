"""One recovery inside a job's workflow: attribute -> decide -> advise -> (approve) -> act -> reconcile.

Every wait has a deadline. When attribution or the decision is late, the fallback goes through: a plain requeue without
exclusions; nothing waits for ever because of us.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from pydantic import JsonValue

    from activities.adopt import RecoveryStart
    from activities.assess import Assessor
    from activities.assessment import AttributeOrder, Attribution, Background, Decided, ending_of, situation_of
    from activities.evidence import EvidenceKeeper, EvidenceOrder
    from activities.findings import Ended, Faulted, Requeued, Slowed, Stalled
    from activities.scheduler.protocol import JobRecord
    from activities.scheduler.requeue import SchedulerActs
    from activities.scheduler.steps import ActOrder
    from recovery.audit import AuditKind
    from recovery.detection.markers import Phase as TrainingPhase
    from recovery.model import (
        Action,
        Advice,
        Category,
        Disposition,
        Exclusion,
        MilestoneKind,
        Mode,
        NodeName,
        Reconciliation,
        Symptom,
        SymptomKind,
        Verdict,
    )
    from recovery.policy import Decision, Ending, Situation
    from workflows.ledger import Ledger
    from workflows.options import act_options, attribute_options, decide_options, evidence_options
    from workflows.resubmitting import Resubmitting
    from workflows.second_opinion import Listening
    from workflows.siblings import Siblings
    from workflows.state import Phase, RecoveryState
    from workflows.visibility import Window

Failure = Ended | Requeued | Faulted | Stalled | Slowed
"""The findings that call for a decision."""

EVIDENCE_FIRST = "evidence-before-kill"
"""Histories from before that was done go on without it."""

MAX_FALLBACKS = 3
"""Plain requeues in a row without a decision; with every worker of the policy gone they would go on for ever."""

FINAL_REFUSALS = ("job_gone", "owner_cancelled", "completed")
"""Reasons of an abandoned advice after which there is nothing left to look after."""


class Recovering:
    """The steps of a recovery over the workflow's state."""

    def __init__(
        self,
        start: RecoveryStart,
        state: RecoveryState,
        ledger: Ledger,
        window: Window,
        siblings: Siblings,
        listening: Listening,
    ) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._window = window
        self._siblings = siblings
        self._listening = listening
        self._resubmitting = Resubmitting(start, state, ledger)

    async def advise(self, failure: Failure) -> Advice:
        """Attribute and decide; the advice is on record, with all that led to it, before this returns."""
        with self._ledger.gathering():
            return await self._advise(failure)

    async def _advise(self, failure: Failure) -> Advice:
        state = self._state
        state.phase = Phase.ATTRIBUTING
        state.symptom = _symptom(failure)
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

    async def act(self, advice: Advice) -> Reconciliation:
        """Carry `advice` out: on record first, then by one durable order. Returns what a fresh look at Slurm says."""
        state = self._state
        state.phase = Phase.ACTING
        self._window.show()
        self._ledger.tell(AuditKind.ORDERED, f"carrying out: {advice.in_words}", who=advice.by, with_advice=True)
        await self._ledger.settle()
        if advice.kill_first and workflow.patched(EVIDENCE_FIRST):
            await self._keep_evidence(advice)
        order = ActOrder(
            advice=advice,
            submitted_at=state.attempt_submitted_at,
            withdraw=self._withdrawn(advice),
            clear_delay=state.terms.clear_requeue_delay and not advice.keep_delay,
            override_no_requeue=state.terms.override_no_requeue,
            spare_s=self._spare_s(advice),
        )
        reconciliation = await self._resubmitting.instead(order, await self._carry_out(order))
        self._record_outcome(advice, reconciliation)
        state.phase = Phase.WATCHING
        return reconciliation

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
            return Reconciliation(
                disposition=Disposition.PENDING,
                reason="no_answer",
                observed_at=workflow.now(),
                detail=f"look at the job by hand: {error.cause}"[:500],
            )

    def _withdrawn(self, advice: Advice) -> tuple[NodeName, ...]:
        """Our own exclusions that the job need not keep. The user's stay, also where they are ours too."""
        state = self._state
        kept = {*advice.exclude, *state.user_excluded}
        ours = dict.fromkeys((*(exclusion.node for exclusion in state.exclusions), *state.readmitted))
        return tuple(node for node in ours if node not in kept)

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
            return _unattributed(failure)

    def _order(self, failure: Failure) -> AttributeOrder:
        state = self._state
        return AttributeOrder(
            job=self._start.job,
            attempt=state.attempt,
            record=failure.record,
            requeued=isinstance(failure, Requeued),
            symptom=_established(failure),
            nodes=_allocation(failure) or state.nodes,
            began=state.began,
            ended=failure.ends if isinstance(failure, Requeued) or _is_certain(failure) else (),
            progress=failure.progress,
            background=Background(
                optin=self._start.optin,
                past=state.past,
                exclusions=state.exclusions,
                user_excluded=state.user_excluded,
                opinion=state.opinion if state.opinion_final else None,
            ),
            decide_too=not (self._siblings.has_any and _is_certain(failure)),
        )

    async def _decide(self, order: AttributeOrder, failure: Failure, attribution: Attribution) -> Decided:
        """Decide what the attribution left to be decided."""
        if attribution.decided is not None:
            self._state.fallbacks = 0
            return attribution.decided
        array = await self._siblings.standing(attribution.verdict) if _is_certain(failure) else None
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

    def _record_outcome(self, advice: Advice, seen: Reconciliation) -> None:
        state = self._state
        state.reconciliation = seen
        what = f"{seen.disposition.value}, {seen.reason.replace('_', ' ')}"
        if seen.resubmitted_as:
            what += f"; resubmitted as {seen.resubmitted_as}"
        if seen.excluded:
            what += f"; the job now avoids {', '.join(seen.excluded)}"
        if seen.detail:
            what += f" ({seen.detail})"
        self._ledger.tell(AuditKind.RECONCILED, what, at=seen.observed_at, with_advice=True)
        if seen.disposition is not Disposition.CONVERGED:
            return
        self._ledger.reach(MilestoneKind.ACTED, at=seen.observed_at, detail=seen.reason)
        if advice.restarts:
            eligible = max(seen.observed_at, seen.eligible_at or seen.observed_at)
            self._ledger.reach(MilestoneKind.ELIGIBLE, at=eligible)
            state.exclusions = self._exclusions(advice, seen)
            state.readmitted = ()

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


def _established(failure: Failure) -> SymptomKind:
    """What the watch knows by itself, whatever the logs say: a fatal line alone may be a quotation."""
    if isinstance(failure, Stalled):
        return failure.symptom
    if isinstance(failure, Slowed):
        return SymptomKind.STRAGGLER
    return SymptomKind.CRASH if _is_certain(failure) else SymptomKind.NONE


def _is_certain(failure: Failure) -> bool:
    """Whether the attempt has failed, beyond doubt."""
    return isinstance(failure, Ended | Stalled) or (isinstance(failure, Faulted) and failure.certain)


def _allocation(failure: Failure) -> tuple[str, ...]:
    return failure.nodes if isinstance(failure, Requeued) else failure.record.nodes


def _symptom(failure: Failure) -> Symptom:
    record = failure.record
    if isinstance(failure, Stalled):
        kind, summary = failure.symptom, failure.summary
    elif isinstance(failure, Faulted):
        kind = SymptomKind.CRASH
        summary = "a fatal line, and no progress since" if failure.certain else "a fatal line while the job runs"
    elif isinstance(failure, Slowed):
        kind, summary = SymptomKind.STRAGGLER, failure.summary
    elif isinstance(failure, Requeued):
        kind, summary = SymptomKind.CRASH, "the attempt ended and the job was requeued, not by relight"
    else:
        kind, summary = SymptomKind.CRASH, f"the attempt ended: {_end(record)}"
    happened = failure.happened_at if isinstance(failure, Faulted | Slowed) else record.ended_at
    return Symptom(kind=kind, detected_at=failure.at, happened_at=happened, summary=summary, evidence=failure.evidence)


def _end(record: JobRecord) -> str:
    how = f"signal {record.exit_signal}" if record.exit_signal else f"exit code {record.exit_code}"
    return f"{record.state.value}, {how}"


def _verdict_line(verdict: Verdict) -> str:
    where = f"culprit {', '.join(verdict.culprits)}, " if verdict.culprits else ""
    return f"{verdict.summary or verdict.cause} ({verdict.category.value}, {where}{verdict.confidence.value})"


def _unattributed(failure: Failure) -> Attribution:
    """What is known without an answer: the scheduler's record, and no verdict."""
    symptom = SymptomKind.HANG if isinstance(failure, Stalled) else SymptomKind.CRASH
    ending = ending_of(failure.record, requeued=isinstance(failure, Requeued), nodes=_allocation(failure))
    verdict = Verdict(
        symptom=symptom,
        category=Category.UNKNOWN,
        cause="not_attributed",
        suggested=Action.RESTART,
        summary="attribution gave no answer within its deadline",
    )
    return Attribution(verdict=verdict, ending=ending, attributed_at=workflow.now())


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
