"""How long a recovery takes on a real Slurm cluster, from the fault line in the log on."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.faults import Recovery, recover_once
from benchmarks.figures import Figure, Report, spread
from benchmarks.service import Servers, running_servers, running_worker
from tests.slurm.cluster import SlurmCluster, why_unavailable
from workers.settings import ClusterSettings

LINGERS_S = (3.0, 0.0)
ADVISED_MEDIAN_TARGET_S, ADVISED_P95_TARGET_S = 3.0, 6.0
ACTED_MEDIAN_TARGET_S = 8.0


async def measure(recoveries: int) -> Report:
    """Time `recoveries` recoveries of each kind of fault, one after the other."""
    interval_s = float(ClusterSettings.model_fields["poll_interval_s"].default)
    what = f"{recoveries} recoveries of each kind from Xid 79 on a real Slurm, 4 nodes, polled every {interval_s:g} s"
    if reason := why_unavailable():
        return Report("latency", what, skipped=reason)
    figures: list[Figure] = []
    async with AsyncExitStack() as stack:
        slurm = SlurmCluster()
        slurm.start()
        stack.callback(slurm.stop)
        servers = await stack.enter_async_context(serving(slurm))
        for linger_s in LINGERS_S:
            figures += _figures(linger_s, [await recover(slurm, servers, linger_s) for _ in range(recoveries)])
    return Report("latency", what, tuple(figures))


@asynccontextmanager
async def serving(slurm: SlurmCluster) -> AsyncIterator[Servers]:
    """Run relight for the cluster while the context is open."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relight-latency-")))
        servers = await stack.enter_async_context(running_servers(directory))
        scheduler = {"kind": "cli", "slurm_conf": str(slurm.conf)}
        settings = servers.write_settings(directory / "relight.yaml", scheduler)
        await stack.enter_async_context(running_worker(directory, settings, servers.client))
        yield servers


async def recover(slurm: SlurmCluster, servers: Servers, linger_s: float) -> Recovery:
    """Run one job into its fault and back; its rank dies `linger_s` seconds after the fault line."""
    return await recover_once(slurm, servers.client, servers.postgres.dsn, linger_s=linger_s)


def _figures(linger_s: float, recoveries: list[Recovery]) -> list[Figure]:
    kind = f"rank dies {linger_s:g} s later" if linger_s else "rank dies at once"
    advised = spread(
        f"{kind}: fault line to advice",
        [recovery.advised_s for recovery in recoveries],
        median_target=ADVISED_MEDIAN_TARGET_S,
        p95_target=ADVISED_P95_TARGET_S,
    )
    stored = spread(f"{kind}: to advice in PostgreSQL", [recovery.stored_s for recovery in recoveries])
    acted = spread(
        f"{kind}: to requeue verified",
        [recovery.acted_s for recovery in recoveries],
        median_target=ACTED_MEDIAN_TARGET_S,
    )
    resumed = spread(f"{kind}: to training resumed", [recovery.resumed_s for recovery in recoveries])
    return [*advised, *stored, *acted, *resumed]
