"""From a cluster's settings to the attribution service that it asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.attribution.http import HttpService
from activities.attribution.nvrx import NvrxService
from activities.attribution.protocol import AttributionService
from activities.attribution.settings import NvrxSettings
from workers.settings import ClusterSettings


@asynccontextmanager
async def open_attribution_service(cluster: ClusterSettings) -> AsyncIterator[AttributionService | None]:
    """Yield the service that the cluster's `attribution` chooses, None where there is none. It connects at its first
    question."""
    settings = cluster.attribution
    if settings is None:
        yield None
        return
    service = NvrxService(settings) if isinstance(settings, NvrxSettings) else HttpService(settings)
    try:
        yield service
    finally:
        await service.close()
