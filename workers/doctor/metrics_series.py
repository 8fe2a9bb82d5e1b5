"""What a store has of the known metrics, under which names and labels, and how old it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ValidationError

from activities.metrics.connection import PrometheusApi
from activities.metrics.names import Group, MetricNames
from activities.metrics.queries import selector
from activities.metrics.series import node_in
from activities.metrics.settings import PrometheusSettings
from recovery.model import NodeName
from workers.doctor.checks import Check, failed, ok, unknown, warning

NODE_LABELS = ("Hostname", "hostname", "instance", "node", "nodename", "kubernetes_node", "host")
"""What exporters, relabelling and Kubernetes call a node."""
_OLD_S = 120.0
_SELDOM_S = 60.0
_NAMED = 4

NodeLabel = Literal["gpu_node", "host_node"]


class _Counted(BaseModel):
    """One group of an instant query's answer."""

    metric: dict[str, str]
    value: tuple[float, str]


@dataclass(frozen=True)
class MetricStore:
    """A store, and what is looked for in it."""

    api: PrometheusApi
    settings: PrometheusSettings
    names: MetricNames

    def selector(self, series: Sequence[str]) -> str:
        """Return the selector of `series` of this cluster."""
        return selector(series, self.settings.matchers)

    def ask(self, promql: str) -> list[_Counted]:
        """Return the answer of an instant query. Raises `MetricsUnreadable`."""
        return [counted for each in self.api.query(promql) if (counted := _parsed(each)) is not None]

    def number(self, promql: str) -> float | None:
        """Return the one number of an answer; None for none. Raises `MetricsUnreadable`."""
        found = self.ask(promql)
        return float(found[0].value[1]) if found else None

    def present(self) -> frozenset[str]:
        """Return the names under which there are series. Raises `MetricsUnreadable`."""
        known = self.selector(sorted(self.names.by_series))
        return frozenset(found.metric.get("__name__", "") for found in self.ask(f"count by (__name__) ({known})"))


def group_check(store: MetricStore, group: Group, present: frozenset[str]) -> Check:
    """Say which of a group's metrics there are, under which names, and which exporter brings those that are missing."""
    metrics = [metric for metric in store.names.metrics if metric.group is group]
    there = {metric.name for metric in metrics if present.intersection(metric.names)}
    missing = {metric.name: metric for metric in reversed(metrics) if metric.name not in there}
    says = f"{len(there)} of {len({metric.name for metric in metrics})} known metrics"
    aliases = sorted(present.intersection(name for metric in metrics for name in metric.also))
    if aliases:
        says += f", as {', '.join(aliases)}"
    if not missing:
        return ok(group.value, says)
    needs = sorted({f"{m.exporter}" + (f" with {m.needs}" if m.needs else "") for m in missing.values()})
    return warning(group.value, f"{says}; without {', '.join(sorted(missing))}", f"they come from {'; '.join(needs)}")


def node_check(store: MetricStore, label: NodeLabel, series: Sequence[str], nodes: Sequence[NodeName] | None) -> Check:
    """Say whether the label that the settings name holds Slurm's nodes, and which one does otherwise."""
    configured = getattr(store.settings.labels, label)
    if not nodes:
        return unknown(f"labels.{label}", "Slurm gives no answer, so nothing tells what its nodes are called")
    labels = sorted({*NODE_LABELS, configured})
    found = store.ask(f"count by ({','.join(labels)}) ({store.selector(series)})")
    named = {name: {node_in(each.metric.get(name, ""), frozenset(nodes)) for each in found} - {""} for name in labels}
    missing = [node for node in nodes if node not in named[configured]]
    if not missing:
        return ok(f"labels.{label}", f"{configured} names all {len(nodes)} of Slurm's nodes")
    if named[configured]:
        says = f"{configured} names {len(named[configured])} of {len(nodes)} nodes, not {', '.join(missing[:_NAMED])}"
        return warning(f"labels.{label}", says, "see that their exporters run and are scraped")
    best = max(labels, key=lambda name: len(named[name]))
    remedy = f"set labels.{label}: {best}" if named[best] else "see that the store scrapes this cluster's nodes"
    return failed(f"labels.{label}", f"{configured} names none of Slurm's nodes", remedy)


def job_check(store: MetricStore, series: Sequence[str]) -> Check:
    """Say whether GPUs' series tell whose job they work for."""
    label = store.settings.labels.job_id
    if any(each.metric.get(label) for each in store.ask(f"count by ({label}) ({store.selector(series)})")):
        return ok("labels.job_id", f"{label} tells the job")
    says = f"no series carries {label}: on shared nodes, other jobs' GPUs count for a job too"
    return warning("labels.job_id", says, "see dcgm-exporter's option --hpc-job-mapping-dir")


def age_check(store: MetricStore, name: str, series: str) -> Check:
    """Say how old the newest sample of `series` is, and how far its samples are apart."""
    # One name only: functions drop it, and a store refuses what is then twice the same.
    known = store.selector([series])
    newest_s = store.number(f"max(timestamp({known}))")
    if newest_s is None:
        return failed(name, "no sample in the last minutes", "see that the store scrapes its targets")
    age_s = max(0.0, datetime.now(UTC).timestamp() - newest_s)
    if age_s > _OLD_S:
        return failed(
            name, f"the newest sample of {series} is {age_s:.0f} s old", "see that the store scrapes its targets"
        )
    # Of series that are old enough to have filled the five minutes.
    samples = store.number(f"quantile(0.5, count_over_time({known}[5m]) and {known} offset 5m)")
    apart_s = 300 / samples if samples else 0.0
    says = f"the newest sample of {series} is {age_s:.0f} s old"
    if apart_s > _SELDOM_S:
        return warning(name, f"{says}, samples are {apart_s:.0f} s apart", "scrape every 15 or 30 s")
    return ok(name, says)


def _parsed(found: object) -> _Counted | None:
    try:
        return _Counted.model_validate(found)
    except ValidationError:
        return None
