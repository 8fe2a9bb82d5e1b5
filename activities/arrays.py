"""Comparing a failed task of a job array with its siblings: the cluster's workflow knows which failed and completed,
the newest reading of the scheduler which run."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.governor import cluster_workflow_id
from activities.scheduler.protocol import JobState
from activities.snapshot import ClusterSnapshots
from recovery.arrays import ArrayStanding, TaskFailed
from recovery.model import JobId

ARRAY_QUERY = "array"
ANSWER_TIMEOUT = timedelta(seconds=5)


class ArrayDesk:
    """Where the tasks of one cluster's arrays ask, as a Temporal activity."""

    def __init__(self, client: Client, cluster: str, snapshots: ClusterSnapshots) -> None:
        self._client = client
        self._cluster = cluster
        self._snapshots = snapshots

    @activity.defn
    async def compare_task(self, failed: TaskFailed) -> ArrayStanding:
        """Return how the array stands with regard to a failure that the cluster's workflow was told of.

        Raises a retryable `ApplicationError` of type ``ArrayUnknown`` where nobody can say: without all siblings, a
        failure of few tasks would look like one of most.
        """
        handle = self._client.get_workflow_handle(cluster_workflow_id(self._cluster))
        try:
            standing: ArrayStanding = await handle.query(
                ARRAY_QUERY, failed, result_type=ArrayStanding, rpc_timeout=ANSWER_TIMEOUT
            )
        except (RPCError, WorkflowQueryFailedError) as error:
            raise ApplicationError(f"array {failed.array_id} is not known: {error}", type="ArrayUnknown") from error
        return standing.model_copy(update={"running": self._running(failed.array_id)})

    def _running(self, array_id: JobId) -> int:
        """A task that was restarted has failed, and counts as that."""
        reading = self._snapshots.reading
        if reading is None:
            raise ApplicationError("the scheduler was not read yet", type="ArrayUnknown")
        return sum(
            job.array_job_id == array_id and job.state is JobState.RUNNING and not job.restart_count
            for job in reading.jobs
        )
