"""The attempt that a job's workflow stands at: what the watch tells of it, and how the next one begins."""

from __future__ import annotations

import asyncio
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.findings import Finding, LinesLost, Reached, SightChanged, WatchOrder
    from activities.lineage import Handed
    from activities.telemetry import TraceExporter
    from recovery.audit import AuditKind
    from recovery.detection.state import MonitorState
    from recovery.model import Action, Category, MilestoneKind, NodeName, Progress
    from recovery.policy import PastAttempt
    from recovery.trace import RecoveryTrace
    from workflows.ledger import Ledger
    from workflows.options import trace_options
    from workflows.state import KEPT_ATTEMPTS, RecoveryState


class Attempts:
    """One attempt after the other, over the workflow's state."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._exporting: asyncio.Task[None] | None = None

    def watch_order(self) -> WatchOrder:
        """Return what the next watch goes on from."""
        state = self._state
        return WatchOrder(
            job=self._start.job,
            optin=self._start.optin,
            attempt=state.attempt,
            submitted_at=state.attempt_submitted_at,
            monitor=state.monitor,
            began=state.began,
            logs=state.logs,
            ended=state.ended,
            report_start=state.recovering,
            allocated=self._ledger.reached(MilestoneKind.ALLOCATED),
            blind_since=state.blind_since,
            lost_lines=state.lost_lines,
            answered_at=state.answered_at,
            stranded=state.stranded,
            kept_off=self._kept_off(),
        )

    def _kept_off(self) -> tuple[NodeName, ...]:
        """Our own exclusions. Of the same attempt it is told once that they keep it from starting."""
        state = self._state
        if state.told_cannot_start == state.attempt:
            return ()
        return tuple(each.node for each in state.exclusions if each.node not in state.user_excluded)

    def take(self, finding: Finding) -> None:
        """Keep what every report of a watch carries."""
        state = self._state
        state.progress, state.monitor = finding.progress, finding.monitor
        state.began, state.logs, state.lost_lines = finding.began, finding.logs, finding.lost_lines

    def begin(self, attempt: int, submitted_at: datetime) -> None:
        """Stand at the next attempt: what was seen in the last one is kept for policy and for nothing else."""
        state = self._state
        state.past = self._with_this_one()
        state.attempt, state.attempt_submitted_at = attempt, submitted_at
        state.began = state.logs
        state.monitor, state.progress, state.lost_lines = MonitorState(), Progress(), 0
        state.nodes, state.ended, state.recovering = (), False, True
        state.opinion, state.opinion_final = None, False

    def reach(self, reached: Reached) -> None:
        """Put a milestone of the attempt on record; once it trains again its recovery is over."""
        state, milestone = self._state, reached.milestone
        # Slurm tells start times in whole seconds: never let one come before the act that led to it.
        at = max([milestone.at, *(earlier.at for earlier in state.milestones[-1:])])
        self._ledger.reach(milestone.kind, at=at, detail=milestone.detail)
        self._ledger.tell(AuditKind.MILESTONE, f"{milestone.kind.value}: {milestone.detail}", at=at)
        if reached.nodes:
            state.nodes = reached.nodes
            if back := sorted({exclusion.node for exclusion in state.exclusions} & set(reached.nodes)):
                self._ledger.tell(AuditKind.WARNED, f"the new allocation contains the excluded {', '.join(back)}")
        if milestone.kind is MilestoneKind.RESUMED:
            state.recovering = False
            self._verify_resume()
            self._exporting = asyncio.create_task(self._export_trace())

    def _verify_resume(self) -> None:
        """A restarted job that does not resume at its checkpoint's step is a finding of its own."""
        kept = [past.checkpoint for past in self._state.past if past.checkpoint is not None]
        first = self._state.progress.first_iteration
        if kept and first is not None and first < max(kept):
            text = f"training resumed at iteration {first}, before the checkpoint of iteration {max(kept)}"
            self._ledger.tell(AuditKind.WARNED, text)

    def see(self, sight: SightChanged | LinesLost) -> None:
        """Show what can't be seen of the attempt, or can again."""
        if isinstance(sight, LinesLost):
            self._ledger.note(f"{sight.lost_lines} lines of this attempt were lost on their way")
            return
        self._state.blind_since, self._state.blind_because = sight.blind_since, sight.reason
        text = f"blind: {sight.reason}" if sight.blind_since else "in sight again"
        self._ledger.tell(AuditKind.BLIND, text, at=sight.at)

    async def exported(self) -> None:
        """Wait for the last recovery's trace; nothing else does."""
        if self._exporting is not None:
            await self._exporting

    async def _export_trace(self) -> None:
        state = self._state
        trace = RecoveryTrace.of(self._start.job, state.attempt, state.generation, state.milestones)
        if trace is None:
            return
        try:
            await workflow.execute_activity_method(
                TraceExporter.export_recovery_trace,
                trace,
                summary="export the recovery's trace",
                **trace_options(self._start.job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("the recovery's trace was not exported: %s", error.cause)

    def handed_on(self) -> Handed | None:
        """What the job that runs in the place of this one goes on from."""
        if not self._state.resubmitted_as:
            return None
        return Handed(past=self._with_this_one(), exclusions=self._state.exclusions)

    def _with_this_one(self) -> tuple[PastAttempt, ...]:
        return (*self._state.past, self._as_past())[-KEPT_ATTEMPTS:]

    def _as_past(self) -> PastAttempt:
        """The current attempt as policy should remember it."""
        state = self._state
        verdict, advice = state.verdict, state.advice
        ours = advice is not None and advice.attempt == state.attempt
        return PastAttempt(
            attempt=state.attempt,
            category=verdict.category if verdict and ours else Category.UNKNOWN,
            cause=verdict.cause if verdict and ours else "",
            fingerprint=verdict.fingerprint if verdict and ours else "",
            action=advice.action if advice and ours else Action.NONE,
            checkpoint=state.progress.checkpoint,
            nodes=state.nodes,
            stop_said_by=state.opinion.says if state.opinion and state.opinion.says_stop else "",
            restarts_before=state.past[-1].restarts_so_far if state.past else 0,
        )
