"""From a cluster's settings to where its jobs' lines are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.logs.files import FileTail
from activities.logs.loki import Loki
from activities.logs.merged import MergedLogs
from activities.logs.protocol import LogSource
from activities.logs.stores.protocol import SurveyedStore
from activities.logs.stores.settings import LokiSettings, VictoriaLogsSettings
from activities.logs.stores.source import StoreLogs
from activities.logs.victorialogs import VictoriaLogs
from workers.log_settings import FileLogs
from workers.settings import ClusterSettings


@asynccontextmanager
async def open_log_source(cluster: ClusterSettings) -> AsyncIterator[LogSource]:
    """Yield the source that the cluster's `logs` choose; several count as one. It connects at its first question."""
    parts = [_part(settings, cluster.name) for settings in cluster.logs]
    source = parts[0] if len(parts) == 1 else MergedLogs(parts)
    try:
        yield source
    finally:
        await source.close()


def make_log_store(settings: LokiSettings | VictoriaLogsSettings, cluster: str) -> SurveyedStore:
    """Return a client of the store that `settings` name."""
    return Loki(settings, cluster) if isinstance(settings, LokiSettings) else VictoriaLogs(settings, cluster)


def _part(settings: FileLogs | LokiSettings | VictoriaLogsSettings, cluster: str) -> LogSource:
    if isinstance(settings, FileLogs):
        return FileTail()
    return StoreLogs(make_log_store(settings, cluster), settings)
