"""What a task of a job array tells of itself, and hears of its siblings, through the cluster's workflow.

A job that is no array task tells and asks nothing. Without an answer in time the task is decided on by itself.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.arrays import ArrayDesk
    from activities.governor import cluster_workflow_id
    from recovery.arrays import MAX_FINGERPRINT_CHARS, ArrayStanding, TaskFailed
    from recovery.model import Verdict
    from workflows.cluster import TASK_COMPLETED_SIGNAL, TASK_FAILED_SIGNAL
    from workflows.options import compare_options

ARRAY_TOLD = "array-told"
"""Histories of tasks from before the cluster's workflow was told of them go on without that."""


class Siblings:
    """The array of one task's workflow."""

    def __init__(self, start: RecoveryStart) -> None:
        self._job = start.job
        self._array_id = start.record.array_job_id
        self._cluster = cluster_workflow_id(start.job.cluster)

    @property
    def has_any(self) -> bool:
        """Whether the job is a task of an array."""
        return bool(self._array_id)

    async def standing(self, verdict: Verdict) -> ArrayStanding | None:
        """Tell of this task's failure and return how its siblings have fared with the like; None: not known."""
        if not verdict.fingerprint or not self._is_told():
            return None
        fingerprint = verdict.fingerprint[:MAX_FINGERPRINT_CHARS]
        failed = TaskFailed(array_id=self._array_id, job_id=self._job.job_id, fingerprint=fingerprint)
        if not await self._tell(TASK_FAILED_SIGNAL, failed):
            return None
        try:
            return await workflow.execute_activity_method(
                ArrayDesk.compare_task,
                failed,
                summary=f"how do the other tasks of array {self._array_id} fare?",
                **compare_options(self._job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("the task is decided on by itself: %s", error.cause)
            return None

    async def tell_completed(self) -> None:
        """Tell that this task has completed."""
        if self._is_told():
            await self._tell(TASK_COMPLETED_SIGNAL, self._array_id)

    def _is_told(self) -> bool:
        return self.has_any and workflow.patched(ARRAY_TOLD)

    async def _tell(self, signal: str, what: TaskFailed | str) -> bool:
        try:
            await workflow.get_external_workflow_handle(self._cluster).signal(signal, what)
        except FailureError as error:
            workflow.logger.warning("the cluster's workflow is not there: %s", error)
            return False
        return True
