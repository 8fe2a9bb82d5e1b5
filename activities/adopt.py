"""Taking jobs under guard: starts their workflows.

Starting is idempotent: the workflow id is the job's, so the same job found twice, by two workers or again after a
restart, has one workflow. Nothing about known jobs needs to be durable but what Temporal keeps anyway.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import structlog
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowFailureError, WorkflowHandle
from temporalio.common import SearchAttributeKey, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.assessment import Terms
from activities.lineage import Handed, Inherited
from activities.scheduler.lineage import read_lineage
from activities.scheduler.protocol import JobRecord
from recovery.model import JobKey, NodeName, Value
from recovery.optin import OptIn

log = structlog.get_logger(__name__)

PHASE = SearchAttributeKey.for_keyword("RecoveryPhase")
"""Where a job's workflow stands; shown by that."""
CLOSED_PHASE = "closed"
"""The guard has ended, and the workflow only puts on record what is still under way."""
MAKE_WAY_SIGNAL = "make_way"
"""Tells such a workflow that its job goes on, and needs a guard of its own."""


class RecoveryStart(Value):
    """A job workflow's argument: the job as it was when it came under guard."""

    job: JobKey
    optin: OptIn
    record: JobRecord
    terms: Terms
    inherited: Inherited = Inherited()
    """Of the job in whose place it was submitted."""

    @property
    def nodes_excluded_before(self) -> frozenset[NodeName]:
        """Nodes on the job's exclusion list that relight put there."""
        return frozenset(exclusion.node for exclusion in self.inherited.handed.exclusions)

    @property
    def told_of_line(self) -> str:
        """What the job stands for, in words; empty: for itself."""
        line = self.inherited
        if line.of is None:
            return ""
        known = "whose history is not known any more" if line.lost else f"with its {len(line.handed.past)} attempts"
        return f"; resubmission {line.resubmissions}, in place of job {line.of}, {known}"


class Selection(Value):
    """Which jobs the operator wants looked after."""

    cluster: str
    environment: str = ""
    """Jobs that name another environment are left alone; empty: all."""
    partitions: tuple[str, ...] = ()
    """Only these partitions; empty: all."""
    terms: Terms = Terms()


class ClosedRecovery(Value):
    """The part of a job workflow's result that is read here."""

    attempt_submitted_at: datetime | None = None
    resubmitted_as: str = ""
    handed_on: Handed | None = None


class Guard(StrEnum):
    """What came of taking a job under guard."""

    TAKEN = "taken"
    """A workflow was started for it."""
    THERE = "there"
    """Its workflow guards it, or has dealt with it."""
    NOT_YET = "not_yet"
    """The id is still another job's workflow's, or that of the job in whose place it was submitted has not ended."""


class Adopter:
    """Starts job workflows on a Temporal client."""

    def __init__(self, client: Client, task_queue: str, selection: Selection) -> None:
        self._client = client
        self._task_queue = task_queue
        self._selection = selection

    async def adopt(self, record: JobRecord, optin: OptIn) -> Guard:
        """Make sure that a workflow guards the job, and return whether one does."""
        job = JobKey(cluster=self._selection.cluster, job_id=record.job_id, submitted_at=record.submitted_at)
        inherited = await self._inherited(record)
        if inherited is None:
            return Guard.NOT_YET
        terms = self._selection.terms
        start = RecoveryStart(job=job, optin=optin, record=record, terms=terms, inherited=inherited)
        try:
            await self._start(start, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            return await self._settle_duplicate(start)
        return Guard.TAKEN

    async def _inherited(self, record: JobRecord) -> Inherited | None:
        """Return what the predecessor's workflow handed on; None while it has not ended."""
        lineage = read_lineage(record.comment)
        if lineage is None:
            return Inherited()
        line = Inherited(of=lineage.of, resubmissions=lineage.count)
        predecessor = JobKey(
            cluster=self._selection.cluster, job_id=lineage.of, submitted_at=record.submitted_at
        ).workflow_id
        try:
            description = await self._client.get_workflow_handle(predecessor).describe()
            if description.close_time is None:
                await self._settle_open(description, record)
                return None
            closed = await self._result_of(description)
        except WorkflowFailureError:
            return line.model_copy(update={"lost": True})
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return line.model_copy(update={"lost": True})
        if closed.resubmitted_as != record.job_id or closed.handed_on is None:
            return line.model_copy(update={"lost": True})
        return line.model_copy(update={"handed": closed.handed_on})

    async def _settle_duplicate(self, start: RecoveryStart) -> Guard:
        """The id has had a workflow: it guards this job, or dealt with it, or belongs to an earlier job of that id."""
        description = await self._client.get_workflow_handle(start.job.workflow_id).describe()
        if description.close_time is None:
            return await self._settle_open(description, start.record)
        if start.record.submitted_at <= await self._dealt_with_until(description, description.close_time):
            return Guard.THERE
        try:
            await self._start(start, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        except WorkflowAlreadyStartedError:
            return Guard.NOT_YET
        return Guard.TAKEN

    async def _settle_open(self, description: WorkflowExecutionDescription, record: JobRecord) -> Guard:
        """Whether the open workflow guards the job in `record`. One whose guard is over is asked to make way where that
        job goes on."""
        if description.typed_search_attributes.get(PHASE) != CLOSED_PHASE:
            return Guard.THERE if await _guards(description, record) else Guard.NOT_YET
        if not record.state.ended:
            await self._ask_to_make_way(description)
        return Guard.NOT_YET

    async def _ask_to_make_way(self, description: WorkflowExecutionDescription) -> None:
        try:
            await self._client.get_workflow_handle(description.id, run_id=description.run_id).signal(MAKE_WAY_SIGNAL)
        except RPCError as error:
            # It has ended meanwhile: so much the better.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def _dealt_with_until(self, description: WorkflowExecutionDescription, closed_at: datetime) -> datetime:
        """Return the submit time of the last attempt that a closed workflow knew. One that was terminated tells of
        none: nothing submitted before its end is taken up again then."""
        try:
            closed = await self._result_of(description)
        except WorkflowFailureError:
            return closed_at
        return closed.attempt_submitted_at or closed_at

    async def _result_of(self, description: WorkflowExecutionDescription) -> ClosedRecovery:
        handle: WorkflowHandle[object, ClosedRecovery] = self._client.get_workflow_handle(
            description.id, run_id=description.run_id, result_type=ClosedRecovery
        )
        return await handle.result(follow_runs=False)

    async def _start(self, start: RecoveryStart, reuse: WorkflowIDReusePolicy) -> None:
        record = start.record
        await self._client.start_workflow(
            "JobRecovery",
            args=[start, None],
            id=start.job.workflow_id,
            task_queue=self._task_queue,
            id_reuse_policy=reuse,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            memo={"submitted_at": record.submitted_at.isoformat(), "name": _plain(record.name)},
            static_summary=f"{_plain(record.name) or 'job'} · job {record.job_id} · {start.job.cluster}",
            static_details=f"user {_plain(record.user)}, partition {_plain(record.partition)}",
        )
        mode = start.optin.mode.value
        log.info("took a job under guard", job=str(start.job), attempt=record.restart_count, mode=mode)


async def _guards(description: WorkflowExecutionDescription, record: JobRecord) -> bool:
    """A running workflow guards this job unless the id was reused: then the record starts over, submitted later."""
    submitted_at = await description.memo_value("submitted_at", default="")
    return record.restart_count > 0 or submitted_at == record.submitted_at.isoformat()


def _plain(text: str) -> str:
    """Job names are outside text: one short line without Markdown's signs."""
    return "".join(sign for sign in text[:80] if sign.isprintable() and sign not in "*_`[]<>#|")
