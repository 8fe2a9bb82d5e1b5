"""A second opinion inside a job's workflow: asked for beside everything else, and heard while the advice is open.

Nobody waits for it. It may make a stop of a restart, or keep more nodes off. What comes too late is put on record, and
a stop among that is remembered for the next failure. After the guard's end the workflow stays for what is still to be
said, and makes way when the job goes on. Where no service is configured nothing here is ever done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.assessment import AttributeOrder, Attribution, Decided
    from activities.logs.protocol import LogCursor
    from activities.scheduler.protocol import JobRecord
    from activities.second_opinion import Counsel, OpinionOrder, SecondOpinion
    from recovery.audit import AuditKind
    from recovery.model import Action, Advice, Confidence, SymptomKind
    from recovery.opinion import Hint, Opinion
    from workflows.governing import Governing
    from workflows.ledger import Ledger
    from workflows.options import opinion_options
    from workflows.state import RecoveryState
    from workflows.visibility import Window


HEARD_OUT = "opinion-heard-out"
"""Histories from before an ended guard waited for what was still to be said end without it."""


class Listening:
    """What is asked of the cluster's service, and what its word changes in the workflow's state."""

    def __init__(
        self, start: RecoveryStart, state: RecoveryState, ledger: Ledger, window: Window, governing: Governing
    ) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._window = window
        self._governing = governing
        self._asking: asyncio.Task[None] | None = None
        self._held = False
        self._makes_way = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the context is open an opinion waits: what is being granted or carried out does not change."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def hear_at_once(self, order: AttributeOrder, attribution: Attribution) -> None:
        """Put on record what was there along with relight's own verdict."""
        if attribution.opinion is not None and attribution.opinion != order.background.opinion:
            self._state.opinion = attribution.opinion
            self._ledger.tell(AuditKind.OPINION, f"at once, {_said(attribution.opinion)}")

    def ask_about(self, order: AttributeOrder, attribution: Attribution, advice: Advice) -> None:
        """Begin to ask about the attempt that `advice` is for, unless the service has had its say on it."""
        state = self._state
        if not state.terms.second_opinion_s or state.opinion_final:
            return
        if state.asking is not None and state.asking.attempt.attempt != state.attempt:
            before = state.asking.attempt.attempt
            self._ledger.tell(AuditKind.OPINION, f"not heard out on attempt {before}: the next one has failed")
        known = attribution.model_copy(update={"decided": None, "usable_nodes": None})
        state.asking = OpinionOrder(attempt=order, attribution=known, key=advice.key)
        self.go_on()

    def go_on(self) -> None:
        """Ask what is still to be asked, anew where that was under way."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self._state.asking is not None:
            self._asking = asyncio.create_task(self._hear(self._state.asking))

    def has_failed(self, record: JobRecord, ended: tuple[LogCursor, ...]) -> None:
        """Ask anew about an attempt of which only a fatal line was known, now that `record` shows its end, and `ended`
        where its output ends."""
        order = self._state.asking
        if order is None or order.attempt.failed:
            return
        attempt = order.attempt.model_copy(update={"record": record, "symptom": SymptomKind.CRASH, "ended": ended})
        self._state.asking = order.model_copy(update={"attempt": attempt})
        self.go_on()

    @staticmethod
    def _is_to_come(order: OpinionOrder, second: SecondOpinion | None) -> bool:
        """Whether there is no opinion because the attempt has not failed beyond doubt: it is asked about again then."""
        return not order.attempt.failed and (second is None or not isinstance(second.heard, Opinion))

    def give_up(self) -> None:
        """Listen no longer: the question is moot."""
        self._state.asking = None
        self.go_on()

    def make_way(self) -> None:
        """Hear nobody out: the job needs another workflow now."""
        self._makes_way = True

    async def hear_out(self) -> None:
        """After the guard's end, wait until what is still to be said is on record, or until the job goes on."""
        asking = self._asking
        if self._state.asking is not None and asking is not None and workflow.patched(HEARD_OUT):
            await workflow.wait_condition(lambda: asking.done() or self._makes_way)
            if not asking.done():
                self._ledger.tell(AuditKind.OPINION, "not heard out: the job goes on, under a guard of its own")
        self.give_up()

    async def _hear(self, order: OpinionOrder) -> None:
        try:
            second = await workflow.execute_activity_method(
                Counsel.second_opinion,
                order,
                summary=f"second opinion on attempt {order.attempt.attempt}",
                **opinion_options(self._start.job.cluster, self._state.terms.second_opinion_s),
            )
        except ActivityError as error:
            second, trouble = None, f"no second opinion: {error.cause}"
        else:
            trouble = ""
        await workflow.wait_condition(lambda: not self._held)
        if self._state.asking is not order or self._is_to_come(order, second):
            return
        self._state.asking = None
        if second is None:
            self._ledger.tell(AuditKind.OPINION, trouble)
        else:
            self._weigh(order, second)
        self._window.show()

    def _weigh(self, order: OpinionOrder, second: SecondOpinion) -> None:
        state, heard = self._state, second.heard
        if not isinstance(heard, Opinion):
            self._ledger.tell(AuditKind.OPINION, f"{heard.says} has no opinion: {heard.reason}")
            return
        if order.attempt.attempt == state.attempt:
            state.opinion, state.opinion_final = heard, order.attempt.failed
        if late := self._too_late(order):
            then = "; remembered for the next failure" if self._remembered(order, heard) else ""
            self._ledger.tell(AuditKind.OPINION, f"too late, {late}; {_said(heard)}{then}")
            return
        changed = self._changed(heard, second.decided)
        self._ledger.tell(AuditKind.OPINION, _said(heard) if changed else f"{_said(heard)}; that changes nothing")
        if changed is not None:
            state.generation, state.advice = changed.generation, changed
            text = f"{changed.in_words}: {changed.reason} (rule {changed.rule})"
            self._ledger.tell(AuditKind.ADVISED, text, at=changed.advised_at, with_advice=True)
            self._governing.reconsider()

    def _too_late(self, order: OpinionOrder) -> str:
        """Why the opinion can't change anything any more; empty where it can."""
        state, advice = self._state, self._state.advice
        if state.closed:
            return "the guard has ended"
        if order.attempt.attempt != state.attempt:
            return "the job has been restarted"
        if advice is None:
            return "the advice was withdrawn"
        if state.reconciliation is not None:
            return f"the advice is {state.reconciliation.disposition.value} already"
        if advice.key != order.key:
            return "the advice has been changed since"
        if order.attempt.failed and not state.due:
            return "the advice was rejected"
        return "the advice has expired" if advice.expires_at <= workflow.now() else ""

    def _changed(self, heard: Opinion, decided: Decided | None) -> Advice | None:
        """The advice as the policy wants it now, where that is a stop instead of a restart or keeps more nodes off."""
        state, advice = self._state, self._state.advice
        if advice is None or decided is None or not advice.restarts:
            return None
        decision = decided.decision
        told = {
            "generation": state.generation + 1,
            "reason": decision.reason,
            "rule": decision.rule,
            "advised_at": decided.decided_at,
        }
        if decision.action is Action.STOP:
            return advice.model_copy(update={**told, "action": Action.STOP, "exclude": ()})
        added = set(decision.exclude) - set(advice.exclude)
        blamed = added and added <= set(heard.nodes) - set(state.readmitted)
        if not blamed or not set(advice.exclude) <= set(decision.exclude):
            return None
        return advice.model_copy(update={**told, "action": decision.action, "exclude": decision.exclude})

    def _remembered(self, order: OpinionOrder, heard: Opinion) -> bool:
        """Keep a stop with the attempt that it is about."""
        if not heard.says_stop or self._state.closed:
            return False
        number, state = order.attempt.attempt, self._state
        if number == state.attempt:
            return True
        state.past = tuple(
            past.model_copy(update={"stop_said_by": heard.says}) if past.attempt == number else past
            for past in state.past
        )
        return True


def _said(opinion: Opinion) -> str:
    """What a service says, for people."""
    sure = "" if opinion.confidence is Confidence.LIKELY else f" ({opinion.confidence.value})"
    blames = f", blames {', '.join(opinion.nodes)}" if opinion.nodes else ""
    why = f": {opinion.text}" if opinion.text else ""
    hint = "does not know" if opinion.hint is Hint.UNKNOWN else f"says {opinion.hint.value}"
    return f"{opinion.says} {hint}{sure}{blames}{why}"
