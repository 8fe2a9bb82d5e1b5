"""A log store as a site has it, for the doctor to look at: what was sent to it can be seen in it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import httpx

from activities.logs.stores.protocol import Window
from activities.scheduler.protocol import JobRecord, JobState
from tests.stores.servers import CLUSTER, RunningStore, shipping
from workers.doctor.checks import Check
from workers.doctor.logs import examine
from workers.settings import ClusterSettings

JOB_ID = "4711"
NODE = "node01"
WELL = {"slurm_job_id": JOB_ID, "cluster": CLUSTER, "host": NODE, "rank": "0", "filename": "train-4711.log"}
VISIBLE_S = 60.0
HOUR_NS = 3_600 * 1_000_000_000


def new_tenant(store: RunningStore) -> str:
    """Return a tenant of which the store knows nothing yet."""
    number = time.time_ns() // 1_000 % 1_000_000_000
    return f"team-{number}" if store.kind == "loki" else f"{number}:1"


def running_job(stdout: str = "") -> JobRecord:
    now = datetime.now(UTC)
    return JobRecord(
        job_id=JOB_ID, state=JobState.RUNNING, submitted_at=now, started_at=now, nodes=(NODE,), stdout=stdout
    )


def cluster_of(logs: dict[str, Any]) -> ClusterSettings:
    return ClusterSettings.model_validate({"name": CLUSTER, "logs": [logs]})


def without(name: str, **others: str) -> dict[str, str]:
    """Return the labels of a line that is well, without one, and with others."""
    return {label: value for label, value in WELL.items() if label != name} | others


def place(store: RunningStore, tenant: str, **changes: Any) -> dict[str, Any]:
    """Return the settings of a store as they should be, with changes."""
    return store.settings(tenant=tenant, **changes).model_dump()


async def looked_at(logs: dict[str, Any], *running: JobRecord, scheduler: object = None) -> dict[str, Check]:
    """Return what the doctor finds, by name without the store's. `scheduler`: tells the jobs' batch scripts, if any."""
    found = await examine(cluster_of(logs), running, scheduler)
    return {check.name.partition(": ")[2]: check for check in found}


async def sent(
    store: RunningStore, tenant: str, labels: dict[str, str], text: str = "step 1", *, ahead_s: float = 0
) -> None:
    """Send a line with exactly these labels, printed `ahead_s` from now, and wait until the store shows it."""
    at_ns = time.time_ns() + int(ahead_s * 1e9)
    async with shipping(store, tenant=tenant) as shipper:
        await shipper.push([{"stream": labels, "values": [[str(at_ns), text]]}])
    if store.kind == "victorialogs":
        async with httpx.AsyncClient(timeout=30) as http:
            (await http.get(f"{store.url}/internal/force_flush")).raise_for_status()
    client, _ = store.client(tenant=tenant)
    around = Window(at_ns - 1, at_ns + 1)
    try:
        async with asyncio.timeout(VISIBLE_S):
            while not await client.survey(around, 1):
                await asyncio.sleep(0.1)
    finally:
        await client.close()
