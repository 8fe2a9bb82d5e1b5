"""From a cluster's settings to where its jobs' lines are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.logs.files import FileTail
from activities.logs.loki import Loki
from activities.logs.merged import MergedLogs
from activities.logs.protocol import LogSource
from activities.logs.steps import BatchScripts, StepFiles
from activities.logs.stores.protocol import SurveyedStore
from activities.logs.stores.settings import LokiSettings, VictoriaLogsSettings
from activities.logs.stores.source import StoreLogs
from activities.logs.victorialogs import VictoriaLogs
from workers.log_settings import FileLogs
from workers.settings import ClusterSettings


@asynccontextmanager
async def open_log_source(cluster: ClusterSettings, scheduler: object = None) -> AsyncIterator[LogSource]:
    """Yield the source that the cluster's `logs` choose; several count as one. It connects at its first question.

    `scheduler`: where it tells jobs' batch scripts, the files that these name are read too.
    """
    steps = StepFiles(scheduler) if isinstance(scheduler, BatchScripts) else None
    parts = [_part(settings, cluster.name, steps) for settings in cluster.logs]
    source = parts[0] if len(parts) == 1 else MergedLogs(parts)
    try:
        yield source
    finally:
        await source.close()


def make_log_store(settings: LokiSettings | VictoriaLogsSettings, cluster: str) -> SurveyedStore:
    """Return a client of the store that `settings` name."""
    return Loki(settings, cluster) if isinstance(settings, LokiSettings) else VictoriaLogs(settings, cluster)


def _part(settings: FileLogs | LokiSettings | VictoriaLogsSettings, cluster: str, steps: StepFiles | None) -> LogSource:
    if isinstance(settings, FileLogs):
        return FileTail(steps if settings.step_files else None)
    return StoreLogs(make_log_store(settings, cluster), settings)
