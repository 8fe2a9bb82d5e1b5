"""One recovery inside a job's workflow: advise -> (approve) -> (grant) -> act, and then stand where that leads.

A person's command may come first at each of these, and may be what is carried out.
"""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.findings import CannotStart, Ended, Faulted, Requeued, Slowed
    from recovery.audit import AuditKind
    from recovery.model import Action, Advice, Confidence, Disposition, MilestoneKind, Mode, SymptomKind
    from workflows.acting import Acting, may_act
    from workflows.advising import Advising
    from workflows.attempts import Attempts
    from workflows.failure import Failure
    from workflows.governing import Governing
    from workflows.ledger import Ledger
    from workflows.obeying import Obeying
    from workflows.overrides import Request, Verb
    from workflows.second_opinion import Listening
    from workflows.siblings import Siblings
    from workflows.state import RecoveryState
    from workflows.successors import Successors
    from workflows.visibility import Window

OF_A_FAILURE = (MilestoneKind.DETECTED, MilestoneKind.ATTRIBUTED, MilestoneKind.ADVISED)

FINAL_REFUSALS = ("job_gone", "owner_cancelled", "completed")
"""Reasons of an abandoned advice after which there is nothing left to look after."""

READMIT_AT_ONCE = "readmit-at-once"
"""Histories from before that was done withdraw the exclusion with the next act."""


class Recovering:
    """Answers to failures over the state of one job's workflow."""

    def __init__(
        self,
        start: RecoveryStart,
        state: RecoveryState,
        ledger: Ledger,
        window: Window,
        attempts: Attempts,
        siblings: Siblings,
        governing: Governing,
        listening: Listening,
        obeying: Obeying,
    ) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._attempts = attempts
        self._governing = governing
        self._listening = listening
        self._obeying = obeying
        self._advising = Advising(start, state, ledger, siblings, listening)
        self._acting = Acting(start, state, ledger, window)
        self._successors = Successors(start, state, ledger, window)

    async def answer(self, failure: Failure) -> None:
        """Advise and, where the mode lets it, act; then stand at the attempt that is there now."""
        state = self._state
        if not await self._unpaused(failure):
            return
        certain = not isinstance(failure, Faulted) or failure.certain
        if (advice := self._standing_advice(failure)) is None:
            advice = await self._advising.advise(failure)
        elif certain:
            self._listening.has_failed(failure.record, failure.ends)
        state.ended = isinstance(failure, Ended)
        state.due = certain
        if not state.due:
            self._ledger.note("due when the attempt ends, or makes no progress for its grace")
            await self._constrain_ahead(advice)
        elif may_act(state, self._start, advice):
            if not self._governing.tells_when_it_asks(advice):
                self._governing.report_failure(advice)
            await self._act(advice)
        else:
            if advice.action is not Action.NONE:
                self._governing.report_failure(advice)
            self._leave(advice, failure)
        if isinstance(failure, Requeued) and not state.closed:
            self._begin_attempt(failure.record.restart_count, failure.record.submitted_at)
        if isinstance(failure, Ended):
            state.answered_at = workflow.now()

    async def advise_on(self, slowed: Slowed) -> None:
        """A slow-down is told and advised on; to end a run that gets somewhere is for a person to say."""
        advice = await self._advising.advise(slowed)
        self._state.due = False
        self._ledger.forget(OF_A_FAILURE)
        if advice.action is not Action.WAIT:
            self._ledger.note("a slow-down alone is never acted on: `relight restart` does it")

    def _standing_advice(self, failure: Failure) -> Advice | None:
        """The advice given on the fatal line stands when it was sure and named the culprit: the end adds nothing, but
        for the program's own wish not to be requeued."""
        advice, verdict = self._state.advice, self._state.verdict
        if advice is None or verdict is None or advice.attempt != self._state.attempt or self._state.reconciliation:
            return None
        certain = verdict.confidence is Confidence.ESTABLISHED and bool(verdict.culprits)
        of_a_crash = self._state.symptom is not None and self._state.symptom.kind is SymptomKind.CRASH
        same = isinstance(failure, Ended | Faulted) and of_a_crash and advice.expires_at > workflow.now()
        has_its_say = isinstance(failure, Ended) and failure.record.exit_code == self._state.terms.no_requeue_exit_code
        return advice if certain and same and not has_its_say else None

    async def _act(self, advice: Advice) -> None:
        """Carry out the advice, after an approval where the operator wants one, and stand where it leads."""
        state = self._state
        if state.terms.approval and advice.by == "policy":
            approved = await self._obeying.approval(advice)
            if approved is None:
                return
            advice = approved
        with self._listening.held():
            await self._carry_out(advice)

    async def _carry_out(self, advice: Advice) -> None:
        state = self._state
        if not await self._governing.grants(advice):
            return
        if self._successors.answers(advice):
            state.closed = self._successors.came_to(await self._successors.constrain(advice))
            return
        seen = await self._acting.act(advice)
        if seen.resubmitted_as:
            state.closed = f"resubmitted as {seen.resubmitted_as}: {advice.reason}"
        elif seen.disposition is Disposition.CONVERGED and advice.action is Action.STOP:
            state.closed = f"stopped by {advice.by}: {advice.reason}"
        elif seen.reason in FINAL_REFUSALS:
            state.closed = f"{seen.reason.replace('_', ' ')}: nothing left to look after"
        elif seen.restart_count > state.attempt:
            self._begin_attempt(seen.restart_count, seen.submitted_at or state.attempt_submitted_at)

    async def _constrain_ahead(self, advice: Advice) -> None:
        """Keep the next job of a chain off a culprit while this one still runs."""
        if not (self._successors.cannot_wait(advice) and may_act(self._state, self._start, advice)):
            return
        if await self._governing.grants(advice):
            await self._successors.constrain(advice, ahead=True)

    async def try_again(self) -> None:
        """Try the advice again that the governor kept back. A failure of an attempt that still runs is not taken for as
        it was: the watch tells of it again, if it is still so."""
        state, advice = self._state, self._obeying.open_advice()
        if advice is not None and advice.kill_first and not state.ended:
            self._governing.let_go()
            state.monitor = state.monitor.untaken()
        elif (standing := self._obeying.standing_advice()) is not None:
            await self._act(standing)
        else:
            self._governing.let_go()
            if advice is not None and advice.expires_at <= workflow.now():
                state.due = False
                self._ledger.tell(AuditKind.KEPT_BACK, "the advice expired while it was kept back: nothing is done")

    def _begin_attempt(self, attempt: int, submitted_at: datetime) -> None:
        if attempt > self._state.attempt:
            self._attempts.begin(attempt, submitted_at)
            self._governing.let_go()

    def _leave(self, advice: Advice, failure: Failure) -> None:
        """Record why nothing is done, and end where nothing is left to watch for."""
        state = self._state
        if advice.restarts or advice.action is Action.STOP:
            self._ledger.tell(AuditKind.ADVISED, "mode observe: nothing is carried out")
        elif isinstance(failure, Ended):
            state.closed = f"{failure.record.state.value.lower()}: {advice.reason}"

    def withdraw(self) -> None:
        """Take the advice on a fatal line back that the attempt got over."""
        self._state.advice = None
        self._state.opinion = None
        self._listening.give_up()
        self._governing.let_go()
        self._ledger.forget(OF_A_FAILURE)
        self._ledger.tell(AuditKind.ADVISED, "training went on after the fatal line: the advice is withdrawn")

    async def let_start(self, kept: CannotStart) -> None:
        """Withdraw the policy's exclusions from a job that can't start with them: better on a suspect than never. What
        a person wants it kept off stays, and is told."""
        by_policy = {each.node for each in self._state.exclusions if each.by == "policy"}
        nodes = tuple(node for node in kept.nodes if node in by_policy)
        if nodes and self._may_let_back():
            why = f"the job could not start without {', '.join(nodes)}"
            self._ledger.tell(AuditKind.WARNED, f"{why}: it may use what it was kept off again", at=kept.at)
            await self._acting.let_back(nodes, by="policy", reason=why)
        else:
            self._state.told_cannot_start = self._state.attempt
            text = f"the job can't start while relight keeps it off {', '.join(kept.nodes)}"
            self._ledger.tell(AuditKind.WARNED, f"{text}: `relight readmit`, in mode act, lets it", at=kept.at)

    async def _readmit(self, request: Request) -> None:
        """Let what a person readmits take effect at once where the job still waits."""
        state = self._state
        nodes = tuple(each for each in state.readmitted if each in request.nodes and each not in state.user_excluded)
        if not nodes or self._obeying.open_advice() is not None:
            return
        waits = not (state.ended or self._ledger.reached(MilestoneKind.ALLOCATED))
        if waits and self._may_let_back() and workflow.patched(READMIT_AT_ONCE):
            await self._acting.let_back(nodes, by=request.who, reason=request.reason or "readmitted")
        else:
            self._ledger.note(f"the job may use {', '.join(nodes)} from its next requeue on")

    def _may_let_back(self) -> bool:
        """Whether there was an act before this attempt, which can be amended, and mode and pause allow it."""
        state = self._state
        return state.attempt > 0 and not state.paused and state.mode(self._start.optin) is Mode.ACT

    async def _unpaused(self, failure: Failure) -> bool:
        """Wait while a person has paused the job; False when a command has overtaken the failure meanwhile."""
        attempt = self._state.attempt
        if self._state.paused:
            self._ledger.tell(AuditKind.DETECTED, "a failure was seen; paused, so nothing is decided", at=failure.at)
        while self._state.paused and not self._state.closed:
            await workflow.wait_condition(lambda: bool(self._state.commands))
            await self.obey()
        return self._state.attempt == attempt and not self._state.closed

    async def obey(self) -> None:
        """Carry out the oldest command of a person."""
        command, *rest = self._state.commands
        self._state.commands = tuple(rest)
        advice = self._obeying.obey(command)
        if advice is not None:
            await self._act(advice)
        elif command.verb is Verb.READMIT:
            await self._readmit(command.request)
