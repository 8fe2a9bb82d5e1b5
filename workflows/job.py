"""`JobRecovery`: guards one Slurm job from its adoption to its end, across all its attempts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import MAKE_WAY_SIGNAL, RecoveryStart
    from activities.findings import (
        CannotStart,
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
    from recovery.model import Action, Disposition, MilestoneKind
    from workflows.attempts import Attempts
    from workflows.chain import Chain
    from workflows.governing import Governing
    from workflows.ledger import Ledger
    from workflows.obeying import Obeying
    from workflows.options import watch_options
    from workflows.overrides import Inbox, Verb, signal_for, update_for
    from workflows.recovering import Recovering
    from workflows.second_opinion import Listening
    from workflows.siblings import Siblings
    from workflows.state import Phase, RecoveryReport, RecoveryState, first_state
    from workflows.visibility import Window


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
        self._obeying = Obeying(start, self._state, self._ledger, self._window)
        self._recovering = Recovering(
            start,
            self._state,
            self._ledger,
            self._window,
            self._attempts,
            self._siblings,
            self._governing,
            self._listening,
            self._obeying,
        )
        self._chain = Chain(start, self._state, self._ledger)

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
                await self._recovering.obey()
            elif self._governing.must_ask_again:
                await self._recovering.try_again()
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
            case DependentsStranded():
                self._chain.tell_of(finding.stranded, for_good=False)
            case Ended() if finding.record.state is JobState.COMPLETED:
                await self._complete(finding)
            case Ended() if finding.record.state is JobState.CANCELLED:
                by = finding.record.cancelled_by or "its owner or an administrator"
                self._state.closed = f"cancelled by {by}: never touched"
            case _:
                await self._recover(finding)

    async def _recover(self, finding: Finding) -> None:
        match finding:
            case FaultSurvived():
                self._recovering.withdraw()
            case CannotStart():
                await self._recovering.let_start(finding)
            case Slowed():
                await self._recovering.advise_on(finding)
            case Ended() | Requeued() | Faulted() | Stalled():
                await self._recovering.answer(finding)

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
