"""One cluster's store of metrics looked at, as attribution will ask it: what it has of what is known, and of whom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from activities.metrics.connection import MetricsUnreadable, PrometheusApi
from activities.metrics.names import Group, MetricNames, UnreadableNames, known_names
from activities.metrics.settings import PrometheusSettings
from activities.scheduler.protocol import SchedulerError
from recovery.model import NodeName
from workers.doctor.checks import Check, failed, ok, unknown, warning
from workers.doctor.metrics_series import MetricStore, age_check, group_check, job_check, node_check
from workers.schedulers import open_scheduler
from workers.settings import ClusterSettings

_SKEW_S = 5.0


async def examine(cluster: ClusterSettings) -> tuple[Check, ...]:
    """Return every check of the cluster's metrics. Without an answer to the first, the others are not tried."""
    settings = cluster.metrics
    if settings is None:
        says = "no store is configured: verdicts are made from lines alone"
        return (unknown("metrics", says, "set metrics: {kind: prometheus, url: ...}"),)
    try:
        names = known_names(settings.names_file)
    except UnreadableNames as error:
        return (failed("names", str(error), "see activities/metrics/names.yaml for its form"),)
    nodes = await _nodes(cluster)
    return await asyncio.to_thread(_looked_at, settings, names, nodes)


def _looked_at(settings: PrometheusSettings, names: MetricNames, nodes: Sequence[NodeName] | None) -> tuple[Check, ...]:
    api = PrometheusApi(settings)
    try:
        api.query("vector(1)")
        reach = (ok("reach", api.shown), _clock(api))
        return (*reach, *_series(MetricStore(api, settings, names), nodes))
    except MetricsUnreadable as error:
        return (failed("reach", error.what, error.remedy),)
    finally:
        api.close()


def _series(store: MetricStore, nodes: Sequence[NodeName] | None) -> list[Check]:
    present = store.present()
    checks = [group_check(store, group, present) for group in Group]
    of_gpus = [name for group in Group if group.of_gpus for name in store.names.of_group(group) if name in present]
    of_hosts = [name for name in store.names.of_group(Group.HOST) if name in present]
    if not of_gpus and not of_hosts:
        says = "the store has no series that attribution knows"
        return [failed("series", says, "see that it scrapes dcgm-exporter and node_exporter, and check `matchers`")]
    if of_gpus:
        checks += [node_check(store, "gpu_node", of_gpus, nodes), job_check(store, of_gpus)]
        checks += [age_check(store, "gpu age", of_gpus[0])]
    if of_hosts:
        checks += [node_check(store, "host_node", of_hosts, nodes), age_check(store, "host age", of_hosts[0])]
    return checks


def _clock(api: PrometheusApi) -> Check:
    told = api.server_time()
    if told is None:
        return unknown("clock", "the store's answers carry no date")
    skew_s = (datetime.now(UTC) - told).total_seconds()
    # A date has whole seconds, cut.
    if -_SKEW_S < skew_s < _SKEW_S + 1:
        return ok("clock", "as here")
    return warning(
        "clock", f"{abs(skew_s):.0f} s apart from this host's", "see to NTP on both: old samples are left out"
    )


async def _nodes(cluster: ClusterSettings) -> tuple[NodeName, ...] | None:
    """Slurm's names of the nodes; None where it gives no answer."""
    try:
        async with open_scheduler(cluster) as scheduler:
            return tuple(node.name for node in await scheduler.nodes())
    except SchedulerError:
        return None
