"""Reading what failed jobs say against nodes: the cluster's workflow knows, and a worker asks it once for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import structlog
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from activities.governor import cluster_workflow_id
from recovery.suspects import Suspicion

SUSPICIONS_QUERY = "suspicions"
ANSWER_TIMEOUT = timedelta(seconds=3)
FRESH_FOR_S = 5.0
"""When hundreds of jobs fail at once, one answer serves those that ask within so long."""

log = structlog.get_logger(__name__)


class SuspicionReader(Protocol):
    """Tells what jobs that failed lately say against the nodes of one cluster."""

    async def suspicions(self) -> tuple[Suspicion, ...]:
        """Return all of them; none where nobody can say, since a verdict waits for no more than `ANSWER_TIMEOUT`."""
        ...


class NoSuspicions:
    """For where no cluster's workflow is."""

    async def suspicions(self) -> tuple[Suspicion, ...]:
        """Return none."""
        return ()


class ClusterSuspicions:
    """The memory of one cluster's workflow."""

    def __init__(self, client: Client, cluster: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._cluster = cluster
        self._monotonic = monotonic
        self._asking = asyncio.Lock()
        self._known: tuple[Suspicion, ...] = ()
        self._known_until_s = float("-inf")

    async def suspicions(self) -> tuple[Suspicion, ...]:
        """Return what the cluster's workflow says, not older than `FRESH_FOR_S`."""
        async with self._asking:
            if self._monotonic() >= self._known_until_s:
                self._known = await self._ask()
                self._known_until_s = self._monotonic() + FRESH_FOR_S
            return self._known

    async def _ask(self) -> tuple[Suspicion, ...]:
        handle = self._client.get_workflow_handle(cluster_workflow_id(self._cluster))
        try:
            known: list[Suspicion] = await handle.query(
                SUSPICIONS_QUERY, result_type=list[Suspicion], rpc_timeout=ANSWER_TIMEOUT
            )
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            log.warning("no answer on what other jobs say of nodes", cluster=self._cluster, because=str(error)[:300])
            return ()
        return tuple(known)
