"""Everything that a drill needs: a cluster with its jobs, the servers, where lines and metrics are, and a worker."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from unittest.mock import patch

import yaml
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.audit import AuditTrail
from activities.governor import cluster_workflow_id
from activities.watch import Watcher
from recovery.audit import AuditEvent
from tests.drills.clusters import DrillCluster, Real, real, simulated, start_crowd
from tests.drills.crowd import Crowd, Ear, IntoFiles, IntoStore, Voice
from tests.embedded.places import open_directory
from tests.metrics.stores import Exporter, MetricStore, running_exporter
from tests.metrics.stores import running_store as running_metric_store
from tests.stores.servers import LABELS, RunningStore, running_store, shipping
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.temporal import EmbeddedTemporal
from workers.settings import load_settings
from workers.worker import running_worker, search_attributes
from workflows.cluster import ClusterWatch
from workflows.job import JobRecovery
from workflows.state import RecoveryState

CLUSTER = "drill"
BLIND_AFTER_S = 3.0
"""Instead of a minute, so that a drill is over sooner."""
INTERVAL_S = 1.0
"""Between two readings of the scheduler, and between two questions to a store that does not push."""
SETTLE_S = 3.0
ADOPT_TIMEOUT_S = 600.0
LOOK_EVERY_S = 1.0
BLIND = "WorkflowType = 'JobRecovery' AND ExecutionStatus = 'Running' AND BlindSince > ''"
MOST_BESIDE = 40
"""Jobs beside the crowd, which no drill looks at, may be blind for reasons of their own: they print nothing."""
METRICS_STALE_AFTER_S = 10.0


class Scene(StrEnum):
    """What stands while a drill goes on."""

    FILES = "files"
    """Lines in files, on the simulated cluster."""
    VICTORIALOGS = "victorialogs"
    LOKI = "loki"
    SLURM = "slurm"
    """Lines in files, on a real Slurm cluster."""


METRICS = {Scene.FILES: "prometheus", Scene.VICTORIALOGS: "victoria-metrics"}
"""Which store of metrics stands in which scene."""


@dataclass
class House:
    """All parties of a drill."""

    scene: Scene
    cluster: DrillCluster
    temporal: EmbeddedTemporal
    postgres: EmbeddedPostgres
    client: Client
    crowd: Crowd
    ear: Ear
    hang_after_s: float
    store: RunningStore | None = None
    """Where lines are, when not in files."""
    metrics: tuple[MetricStore, Exporter] | None = None
    """Where metrics are, and who shows them to be scraped."""

    @property
    def metrics_there(self) -> tuple[MetricStore, Exporter]:
        """Return them, where the scene has any."""
        assert self.metrics is not None
        return self.metrics

    async def blind_sources(self) -> set[str]:
        """Return the names of the sources that are shown as blind now."""
        handle = self.client.get_workflow_handle_for(ClusterWatch.run, cluster_workflow_id(CLUSTER))
        return {each.source for each in (await handle.query(ClusterWatch.standing)).blind}

    async def are_blind(self, job_ids: frozenset[str]) -> bool:
        """Whether all these jobs are shown as blind now."""
        # To count costs little, and what a drill costs slows down what it looks at.
        if (await self.client.count_workflows(BLIND)).count < len(job_ids):
            return False
        return job_ids <= await self._blind()

    async def are_in_sight(self, job_ids: frozenset[str]) -> bool:
        """Whether none of these jobs is shown as blind now."""
        if (await self.client.count_workflows(BLIND)).count > MOST_BESIDE:
            return False
        return not job_ids & await self._blind()

    async def _blind(self) -> set[str]:
        return {found.id.rpartition("/")[2] async for found in self.client.list_workflows(BLIND)}

    async def guarded(self) -> int:
        """Return how many jobs are under guard."""
        return (await self.client.count_workflows("WorkflowType = 'JobRecovery'")).count

    async def state(self, job_id: str) -> RecoveryState:
        """Return what relight knows of a job."""
        handle = self.client.get_workflow_handle_for(JobRecovery.run, f"recovery/{CLUSTER}/{job_id}")
        return await handle.query(JobRecovery.state)

    async def audited(self, job_id: str) -> tuple[AuditEvent, ...]:
        """Return the job's events, from PostgreSQL."""
        trail = AuditTrail(self.postgres.dsn)
        try:
            return (await trail.events_of_job(CLUSTER, job_id, limit=500)).events
        finally:
            await trail.close()


@asynccontextmanager
async def house(scene: Scene, voices: int, hang_after_s: float) -> AsyncIterator[House]:
    """A house in which `voices` jobs are under guard in mode act, and a silence of `hang_after_s` is a hang. Raises
    `NoStore` where its store is not on this machine."""
    async with AsyncExitStack() as stack:
        place = stack.enter_context(open_directory())
        store = stack.enter_context(running_store(scene.value)) if scene in (Scene.LOKI, Scene.VICTORIALOGS) else None
        metrics = _metrics(stack, scene)
        cluster: DrillCluster = await stack.enter_async_context(
            real(voices) if scene is Scene.SLURM else simulated(2 * voices)
        )
        temporal = EmbeddedTemporal(place / "temporal", search_attributes=search_attributes())
        postgres = EmbeddedPostgres(place / "postgres")
        await stack.enter_async_context(temporal)
        await stack.enter_async_context(postgres)
        config = _settings_file(place, cluster, temporal, postgres, store, metrics, hang_after_s)
        crowd = await _speaking(stack, await start_crowd(cluster, voices), store)
        ear = Ear()
        stack.enter_context(ear.listening())
        client = await Client.connect(temporal.address, data_converter=pydantic_data_converter)
        watcher = functools.partial(Watcher, blind_after_s=BLIND_AFTER_S)
        stack.enter_context(patch("workers.worker.Watcher", watcher))
        await stack.enter_async_context(running_worker(client, load_settings(config), postgres.dsn))
        found = House(scene, cluster, temporal, postgres, client, crowd, ear, hang_after_s, store, metrics)
        await all_followed(found)
        yield found


def _metrics(stack: AsyncExitStack, scene: Scene) -> tuple[MetricStore, Exporter] | None:
    if scene not in METRICS:
        return None
    exporter = stack.enter_context(running_exporter())
    exporter.show('DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="node01"} 99')
    return stack.enter_context(running_metric_store(METRICS[scene], exporter)), exporter


def _metrics_settings(store: MetricStore) -> dict[str, object]:
    settings = store.settings(name=store.kind, canary_s=INTERVAL_S, stale_after_s=METRICS_STALE_AFTER_S, timeout_s=2)
    return settings.model_dump(mode="json")


async def _speaking(stack: AsyncExitStack, voices: list[Voice], store: RunningStore | None) -> Crowd:
    if store is None:
        files = IntoFiles()
        stack.callback(files.close)
        crowd = Crowd(voices, files)
    else:
        outlet = IntoStore(await stack.enter_async_context(shipping(store, cluster=CLUSTER)), CLUSTER)
        stack.callback(asyncio.create_task(outlet.deliver_forever()).cancel)
        crowd = Crowd(voices, outlet)
    await stack.enter_async_context(crowd.speaking())
    return crowd


def _settings_file(
    place: Path,
    cluster: DrillCluster,
    temporal: EmbeddedTemporal,
    postgres: EmbeddedPostgres,
    store: RunningStore | None,
    metrics: tuple[MetricStore, Exporter] | None,
    hang_after_s: float,
) -> Path:
    logs: dict[str, object] = {"kind": "files"}
    if store is not None:
        logs = store.settings(labels=LABELS, poll_interval_s=INTERVAL_S, timeout_s=2).model_dump(mode="json")
    file = place / "relight.yaml"
    settings = {
        "state_dir": str(place / "state"),
        "temporal": {"address": temporal.address},
        "audit": {"dsn": postgres.dsn},
        "clusters": [
            {
                "name": CLUSTER,
                "scheduler": cluster.settings,
                "mode": "act",
                "acknowledge_scheduler_actions": True,
                "poll_interval_s": 2 * INTERVAL_S if isinstance(cluster, Real) else INTERVAL_S,
                "logs": [logs],
                "metrics": _metrics_settings(metrics[0]) if metrics is not None else None,
                "detection": {"hang_after_s": hang_after_s, "settle_s": SETTLE_S},
            }
        ],
    }
    file.write_text(yaml.safe_dump(settings))
    return file


async def all_followed(house: House) -> None:
    """Wait until each job is under guard and its newest lines are heard."""
    said = [(voice, voice.said) for voice in house.crowd.voices]
    async with asyncio.timeout(ADOPT_TIMEOUT_S):
        while await house.guarded() < len(said) or any(house.ear.missed(voice, up_to) for voice, up_to in said):
            await asyncio.sleep(LOOK_EVERY_S)
