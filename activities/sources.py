"""Which of a cluster's sources can't be seen, told to the cluster's workflow whenever that changes.

A job tells for itself when its own lines are out of sight. This is about the sources, the scheduler, each log store and
the store of metrics, so that people learn of an outage before anybody needs what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from activities.blindness import Blindness, Sighted, blind
from activities.governor import cluster_workflow_id
from activities.snapshot import ClusterSnapshots

log = structlog.get_logger(__name__)

SOURCES_SIGNAL = "sources"
LOOK_EVERY_S = 2.0
MOST_BLIND = 16


class SchedulerSight:
    """The scheduler as a source."""

    def __init__(self, snapshots: ClusterSnapshots) -> None:
        self._snapshots = snapshots

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """As its readings tell."""
        since = self._snapshots.silent_since
        return (blind("scheduler", since, self._snapshots.silent_because),) if since is not None else ()


class SourceWatch:
    """Looks at a cluster's sources for as long as `run` runs."""

    def __init__(self, client: Client, cluster: str, sources: Sequence[Sighted]) -> None:
        self._client = client
        self._cluster = cluster
        self._sources = tuple(sources)

    @property
    def blind(self) -> tuple[Blindness, ...]:
        """The sources that can't be seen now."""
        return tuple(found for source in self._sources for found in source.blindnesses)[:MOST_BLIND]

    async def run(self) -> None:
        """Tell the cluster's workflow of each change until cancelled."""
        told: frozenset[tuple[str, datetime]] | None = None
        while True:
            found = self.blind
            now = frozenset((each.source, each.since) for each in found)
            if now != told and await self._tell(found):
                told = now
            await asyncio.sleep(LOOK_EVERY_S)

    async def _tell(self, found: tuple[Blindness, ...]) -> bool:
        """Whether it was told: while Temporal is away it can't be."""
        try:
            handle = self._client.get_workflow_handle(cluster_workflow_id(self._cluster))
            await handle.signal(SOURCES_SIGNAL, found)
        except RPCError as error:
            log.info("which sources are blind was not told", cluster=self._cluster, error=error.message[:200])
            return False
        return True
