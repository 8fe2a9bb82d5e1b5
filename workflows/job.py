"""`JobRecovery`: guards one Slurm job from its adoption to its end, across all its attempts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import MAKE_WAY_SIGNAL, RecoveryStart
    from activities.findings import (
        DependentsStranded,
        Ended,
        Faulted,
        FaultSurvived,
        Finding,
        Gone,
        LinesLost,
        Reached,
        Requeued,
        SightChanged,
        Slowed,
        Stalled,
    )
    from activities.scheduler.protocol import JobState
    from activities.watch import Watcher
    from recovery.audit import AuditKind
    from recovery.model import Action, Advice, Confidence, Disposition, MilestoneKind, SymptomKind
    from workflows.attempts import Attempts
    from workflows.chain import Chain
    from workflows.governing import Governing
    from workflows.ledger import Ledger
    from workflows.obeying import Obeying
    from workflows.options import watch_options
    from workflows.overrides import Inbox, Verb, signal_for, update_for
    from workflows.recovering import FINAL_REFUSALS, Failure, Recovering, may_act
    from workflows.second_opinion import Listening
    from workflows.siblings import Siblings
    from workflows.state import Phase, RecoveryReport, RecoveryState, first_state
    from workflows.successors import Successors
    from workflows.visibility import Window


OF_A_FAILURE = (MilestoneKind.DETECTED, MilestoneKind.ATTRIBUTED, MilestoneKind.ADVISED)


@workflow.defn(name="JobRecovery")
class JobRecovery:
    """One Slurm job, all its attempts: watch, and for each failure attribute, decide and, where it may, act."""

    @workflow.init
    def __init__(self, start: RecoveryStart, state: RecoveryState | None = None) -> None:
        self._start = start
        self._state = state or first_state(start)
        self.inbox = Inbox(self._state, start.optin)
        self._ledger = Ledger(start, self._state)
        self._window = Window(start, self._state)
        self._attempts = Attempts(start, self._state, self._ledger)
        self._siblings = Siblings(start)
        self._governing = Governing(start, self._state, self._ledger, self._window)
        self._listening = Listening(start, self._state, self._ledger, self._window, self._governing)
        self._recovering = Recovering(start, self._state, self._ledger, self._window, self._siblings, self._listening)
        self._obeying = Obeying(start, self._state, self._ledger, self._window)
        self._chain = Chain(start, self._state, self._ledger)
        self._successors = Successors(start, self._state, self._ledger, self._window)

    @workflow.run
    async def run(self, start: RecoveryStart, state: RecoveryState | None = None) -> RecoveryReport:  # noqa: ARG002
        """Guard the job until it completes, is stopped, is cancelled by a person, or is gone.

        `state` is what an earlier run of this workflow handed on.
        """
        courier = asyncio.create_task(self._ledger.deliver_forever())
        self._adopt(start)
        self._listening.go_on()
        while not self._state.closed:
            self._window.show()
            if self._state.commands:
                await self._obey()
            elif self._must_ask_again():
                await self._ask_again()
            elif (finding := await self._watch()) is not None:
                await self._respond(finding)
            if workflow.info().is_continue_as_new_suggested():
                await self._continue_as_new()
        if self._failed_for_good():
            await self._chain.tell_of_all_stranded()
        self._obeying.close()
        self._ledger.tell(AuditKind.CLOSED, self._state.closed)
        self._state.phase = Phase.CLOSED
        self._window.show()
        await self._listening.hear_out()
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._ledger.settle(grace=None)
        await self._attempts.exported()
        courier.cancel()
        return self._report()

    @workflow.query
    def state(self) -> RecoveryState:
        """Return all that the workflow knows."""
        return self._state

    @workflow.signal(
        name=MAKE_WAY_SIGNAL, description="The job goes on after the guard's end; for relight's own workers"
    )
    def make_way(self) -> None:
        """Hear nobody out any more: another workflow is to guard the job."""
        self._listening.make_way()

    approve, approve_signal = update_for(Verb.APPROVE), signal_for(Verb.APPROVE)
    reject, reject_signal = update_for(Verb.REJECT), signal_for(Verb.REJECT)
    restart, restart_signal = update_for(Verb.RESTART), signal_for(Verb.RESTART)
    stop, stop_signal = update_for(Verb.STOP), signal_for(Verb.STOP)
    exclude, exclude_signal = update_for(Verb.EXCLUDE), signal_for(Verb.EXCLUDE)
    readmit, readmit_signal = update_for(Verb.READMIT), signal_for(Verb.READMIT)
    pause, pause_signal = update_for(Verb.PAUSE), signal_for(Verb.PAUSE)
    resume, resume_signal = update_for(Verb.RESUME), signal_for(Verb.RESUME)
    mode, mode_signal = update_for(Verb.MODE), signal_for(Verb.MODE)

    def _adopt(self, start: RecoveryStart) -> None:
        if self._state.audit_count:
            return
        state = self._state
        self._ledger.reach(MilestoneKind.ADOPTED, at=workflow.now())
        text = f"watching attempt {state.attempt} in mode {state.mode(start.optin).value}"
        self._ledger.tell(AuditKind.ADOPTED, f"{text}{start.told_of_line}")
        if start.optin.warning:
            self._ledger.tell(AuditKind.WARNED, start.optin.warning)

    async def _watch(self) -> Finding | None:
        """Watch the attempt until there is something to respond to; None when a person's command came first, or it is
        time to try again what the governor kept back."""
        state = self._state
        watch = workflow.start_activity_method(
            Watcher.watch_attempt,
            self._attempts.watch_order(),
            summary=f"watch attempt {state.attempt}",
            **watch_options(self._start.job.cluster),
        )
        ask_at = self._governing.ask_at
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: watch.done() or bool(state.commands) or self._governing.ask_at != ask_at,
                timeout=None if ask_at is None else max(timedelta(), ask_at - workflow.now()),
                timeout_summary="ask the governor again",
            )
        if not watch.done():
            watch.cancel()
            with suppress(ActivityError):
                await watch
            return None
        finding: Finding = await watch
        self._attempts.take(finding)
        return finding

    async def _respond(self, finding: Finding) -> None:
        """Answer what the watch found; where only its lease is over, there is nothing to answer."""
        match finding:
            case Gone():
                self._state.closed = f"gone: {finding.detail}"
            case SightChanged() | LinesLost():
                self._attempts.see(finding)
            case Reached():
                self._attempts.reach(finding)
            case FaultSurvived():
                self._withdraw()
            case DependentsStranded():
                self._chain.tell_of(finding.stranded, for_good=False)
            case Ended() if finding.record.state is JobState.COMPLETED:
                await self._complete(finding)
            case Ended() if finding.record.state is JobState.CANCELLED:
                by = finding.record.cancelled_by or "its owner or an administrator"
                self._state.closed = f"cancelled by {by}: never touched"
            case Slowed():
                await self._advise_on(finding)
            case Ended() | Requeued() | Faulted() | Stalled():
                await self._recover(finding)

    async def _recover(self, failure: Failure) -> None:
        """Advise and, where the mode lets it, act; then stand at the attempt that is there now."""
        state = self._state
        if not await self._unpaused(failure):
            return
        certain = not isinstance(failure, Faulted) or failure.certain
        if (advice := self._standing_advice(failure)) is None:
            advice = await self._recovering.advise(failure)
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

    async def _advise_on(self, slowed: Slowed) -> None:
        """A slow-down is told and advised on; to end a run that gets somewhere is for a person to say."""
        advice = await self._recovering.advise(slowed)
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
        seen = await self._recovering.act(advice)
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

    def _must_ask_again(self) -> bool:
        ask_at = self._governing.ask_at
        return ask_at is not None and ask_at <= workflow.now()

    async def _ask_again(self) -> None:
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

    def _withdraw(self) -> None:
        self._state.advice = None
        self._state.opinion = None
        self._listening.give_up()
        self._governing.let_go()
        self._ledger.forget(OF_A_FAILURE)
        self._ledger.tell(AuditKind.ADVISED, "training went on after the fatal line: the advice is withdrawn")

    async def _complete(self, ended: Ended) -> None:
        self._ledger.reach(MilestoneKind.COMPLETED, at=ended.record.ended_at or ended.at)
        self._ledger.tell(AuditKind.MILESTONE, "completed", at=ended.at)
        self._state.closed = "completed"
        await self._siblings.tell_completed()

    def _failed_for_good(self) -> bool:
        """Whether the job ended in a failure, or by our stop."""
        state = self._state
        converged = state.reconciliation is not None and state.reconciliation.disposition is Disposition.CONVERGED
        stopped = converged and state.advice is not None and state.advice.action is Action.STOP
        return state.ended or stopped

    async def _unpaused(self, failure: Failure) -> bool:
        """Wait while a person has paused the job; False when a command has overtaken the failure meanwhile."""
        attempt = self._state.attempt
        if self._state.paused:
            self._ledger.tell(AuditKind.DETECTED, "a failure was seen; paused, so nothing is decided", at=failure.at)
        while self._state.paused and not self._state.closed:
            await workflow.wait_condition(lambda: bool(self._state.commands))
            await self._obey()
        return self._state.attempt == attempt and not self._state.closed

    async def _obey(self) -> None:
        """Carry out the oldest command of a person."""
        command, *rest = self._state.commands
        self._state.commands = tuple(rest)
        advice = self._obeying.obey(command)
        if advice is not None:
            await self._act(advice)

    async def _continue_as_new(self) -> None:
        """Go on in a new run: state, commands and undelivered events move along."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(args=[self._start, self._state])

    def _report(self) -> RecoveryReport:
        state = self._state
        return RecoveryReport(
            job=self._start.job,
            closed=state.closed,
            attempt=state.attempt,
            attempt_submitted_at=state.attempt_submitted_at,
            milestones=state.milestones,
            resubmitted_as=state.resubmitted_as,
            handed_on=self._attempts.handed_on(),
        )
