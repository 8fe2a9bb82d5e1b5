"""What a job's workflow asks of its cluster's governor, and tells it.

An act by policy needs a grant. Without one, or without an answer in time, nothing is done for now: the job is left as
its scheduler has it, which is how it would be without relight, and the advice is tried again while it holds. A person's
own order is never asked for, and neither is a stop of what has ended already.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.governor import GovernorDesk, cluster_workflow_id
    from recovery.arrays import MAX_FINGERPRINT_CHARS
    from recovery.audit import AuditKind
    from recovery.governor import GrantRequest, Limit, Ruling, Tripped
    from recovery.model import Advice
    from recovery.notices import FailureSeen
    from recovery.policy.decide import ARRAY_SYSTEMATIC
    from recovery.suspects import weights_against
    from workflows.cluster import FAILED_SIGNAL
    from workflows.ledger import Ledger
    from workflows.options import ask_options
    from workflows.state import KeptBack, Phase, RecoveryState
    from workflows.visibility import Window

SOONEST = timedelta(seconds=5)
"""However soon there may be room: many ask."""
NO_ANSWER_AGAIN = timedelta(seconds=30)
"""Not sooner: it may be that everything is busy."""
PAUSED_AGAIN = timedelta(seconds=30)
RUNNING_AGAIN = timedelta(minutes=5)
"""For an attempt that still runs: its failure is looked into anew each time."""

STOP_AT_ONCE = "stop-at-once"
"""Histories from before that was done go on at the governor's next turn."""


class Governing:
    """Grants over the state of one job's workflow."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger, window: Window) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._window = window
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def ask_at(self) -> datetime | None:
        """When to ask again; None while nothing is kept back, or a person has paused the job."""
        kept = self._state.kept_back
        return kept.ask_at if kept is not None and not self._state.paused else None

    @property
    def must_ask_again(self) -> bool:
        """Whether it is time for that."""
        return self.ask_at is not None and self.ask_at <= workflow.now()

    async def grants(self, advice: Advice) -> bool:
        """Whether `advice` may be carried out now. Where it may not, that is on record, with the reason."""
        state = self._state
        if not self._must_ask(advice):
            self.let_go()
            return True
        with self._ledger.gathering():
            ruling = await self._ask(advice)
        if isinstance(ruling, Tripped):
            self._keep_back(advice, ruling)
            return False
        if state.kept_back is not None:
            self._ledger.tell(AuditKind.KEPT_BACK, f"there is room now: {advice.in_words}", with_advice=True)
        self.let_go()
        return True

    def reconsider(self) -> None:
        """Ask no more, but try at once, where the advice that is kept back has become one that needs no grant."""
        state, kept, advice = self._state, self._state.kept_back, self._state.advice
        if kept is not None and advice is not None and not self._must_ask(advice) and workflow.patched(STOP_AT_ONCE):
            state.kept_back = kept.model_copy(update={"ask_at": workflow.now()})

    def let_go(self) -> None:
        """Keep nothing back any more."""
        self._state.kept_back = None
        if self._state.phase is Phase.KEPT_BACK:
            self._state.phase = Phase.WATCHING

    def report_failure(self, advice: Advice) -> None:
        """Tell the cluster's workflow of the attempt's failure, once. Nothing waits for that."""
        if (failure := self._untold(advice)) is None:
            return
        self._state.failure_told = self._state.attempt
        task = asyncio.create_task(self._send(failure))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def tells_when_it_asks(self, advice: Advice) -> bool:
        """Whether the failure is told along with the question for a grant, which comes next."""
        return self._must_ask(advice) and not self._state.terms.approval

    def _must_ask(self, advice: Advice) -> bool:
        return advice.by == "policy" and (advice.restarts or not self._state.ended)

    def _untold(self, advice: Advice) -> FailureSeen | None:
        """The current attempt's failure, where the cluster's workflow was not told of it."""
        state, verdict = self._state, self._state.verdict
        if state.failure_told == state.attempt:
            return None
        return FailureSeen(
            job=str(self._start.job),
            attempt=state.attempt,
            partition=state.partition[:200],
            category=verdict.category.value if verdict else "",
            what=((verdict.summary or verdict.cause) if verdict else advice.reason)[:300],
            advice=advice.in_words[:300],
            systematic=advice.reason[:300] if advice.rule == ARRAY_SYSTEMATIC else "",
            array_id=self._start.record.array_job_id,
            fingerprint=verdict.fingerprint[:MAX_FINGERPRINT_CHARS] if verdict else "",
            against=weights_against(verdict, state.nodes) if verdict else {},
        )

    async def _send(self, failure: FailureSeen) -> None:
        cluster = workflow.get_external_workflow_handle(cluster_workflow_id(self._start.job.cluster))
        try:
            await cluster.signal(FAILED_SIGNAL, failure)
        except FailureError as error:
            workflow.logger.warning("nobody is told of this failure: the cluster's workflow is not there: %s", error)

    async def _ask(self, advice: Advice) -> Ruling:
        state = self._state
        request = GrantRequest(
            key=advice.key,
            partition=state.partition,
            restarts=advice.restarts,
            nodes=max(len(state.nodes), self._start.record.node_count),
            exclude=advice.exclude if advice.restarts else (),
            excluded_until=workflow.now() + timedelta(hours=state.terms.exclusion_hours),
            usable_nodes=state.usable_nodes,
            failure=self._untold(advice),
        )
        try:
            ruling: Ruling = await workflow.execute_activity_method(
                GovernorDesk.ask_governor,
                request,
                summary=f"may attempt {advice.attempt} be answered by {advice.action.value}?",
                **ask_options(self._start.job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("the governor gave no answer in time: %s", error.cause)
            self.report_failure(advice)
            return Tripped(limit=Limit.NO_ANSWER, says=f"the governor gave no answer: {error.cause}"[:300])
        state.failure_told = state.attempt
        return ruling

    def _keep_back(self, advice: Advice, tripped: Tripped) -> None:
        state, now = self._state, workflow.now()
        before = state.kept_back
        ask_at = self._ask_again_at(advice, tripped, now)
        if before is None or before.limit is not tripped.limit:
            text = f"observing for now, {tripped.says}; asked again until {advice.expires_at:%H:%M:%S} UTC"
            self._ledger.tell(AuditKind.KEPT_BACK, text, with_advice=True)
        state.kept_back = KeptBack(
            limit=tripped.limit, says=tripped.says, since=before.since if before else now, ask_at=ask_at
        )
        state.phase = Phase.KEPT_BACK
        self._window.show()

    def _ask_again_at(self, advice: Advice, tripped: Tripped, now: datetime) -> datetime:
        if advice.kill_first and not self._state.ended:
            return now + RUNNING_AGAIN
        unknown = NO_ANSWER_AGAIN if tripped.limit is Limit.NO_ANSWER else PAUSED_AGAIN
        return max(now + SOONEST, min(tripped.until or now + unknown, advice.expires_at))
