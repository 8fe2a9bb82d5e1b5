"""From a cluster's settings to where its metrics are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.metrics.names import UnreadableNames, known_names
from activities.metrics.prometheus import PrometheusMetrics
from activities.metrics.protocol import MetricSource, NoMetrics
from workers.errors import OperatorError
from workers.settings import ClusterSettings


@asynccontextmanager
async def open_metrics(cluster: ClusterSettings) -> AsyncIterator[MetricSource]:
    """Yield the source that the cluster's `metrics` choose. Raises `OperatorError` for a bad file of names."""
    if cluster.metrics is None:
        yield NoMetrics()
        return
    try:
        names = known_names(cluster.metrics.names_file)
    except UnreadableNames as error:
        raise OperatorError(
            f"cluster {cluster.name}: {error}", "see activities/metrics/names.yaml for its form"
        ) from error
    source = PrometheusMetrics(cluster.metrics, names)
    canary = asyncio.create_task(source.keep_fresh(), name=f"canary of {cluster.metrics.name}")
    try:
        yield source
    finally:
        canary.cancel()
        await asyncio.gather(canary, return_exceptions=True)
        source.close()
