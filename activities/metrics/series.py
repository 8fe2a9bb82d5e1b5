"""What a store answers, parsed into series: bounded, in attribution's names, without what is too old to tell."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.metrics.names import Kind, Metric, MetricNames
from activities.metrics.settings import MetricLabels
from recovery.attribution.incident import MetricSample
from recovery.model import NodeName

MAX_SAMPLES = 40_000
"""Kept of all series together: attribution reads so many in a second."""
MOST_OF_A_SERIES = 12
_UNKNOWN_INTERVAL = timedelta(seconds=60)
_WHICH = ("device", "port", "mountpoint")
_UNSAFE = str.maketrans({'"': "'", "\\": "/", "\n": " ", "{": "(", "}": ")"})
_MAX_LABEL_CHARS = 120


class RawSeries(BaseModel):
    """One series as Prometheus' HTTP API gives it."""

    model_config = ConfigDict(frozen=True)

    metric: dict[str, str]
    values: tuple[tuple[float, str], ...] = Field(default=(), max_length=50_000)
    """Seconds since the epoch and the value in text."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of one node of the job."""

    metric: Metric
    node: NodeName
    labels: str
    """What tells it from the node's others, in Prometheus' text form."""
    points: tuple[tuple[datetime, float], ...]
    """Oldest first, never empty."""

    @property
    def newest_at(self) -> datetime:
        """When it was scraped last."""
        return self.points[-1][0]

    @property
    def interval(self) -> timedelta:
        """How far its samples are apart."""
        times = [at for at, _ in self.points]
        if len(times) < 2:
            return _UNKNOWN_INTERVAL
        return timedelta(seconds=statistics.median((b - a).total_seconds() for a, b in itertools.pairwise(times)))

    def is_stale(self, at: datetime, scrapes: int) -> bool:
        """Whether its newest sample is older than `scrapes` of its own intervals at `at`."""
        return at - self.newest_at > scrapes * self.interval

    def tells(self, at: datetime, scrapes: int) -> bool:
        """Whether it says anything at `at`: how things stand now, or that something changed."""
        if self.metric.kind is Kind.LEVEL:
            return not self.is_stale(at, scrapes)
        return len({value for _, value in self.points}) > 1


def read_series(
    found: Iterable[object], nodes: Sequence[NodeName], names: MetricNames, labels: MetricLabels
) -> list[Series]:
    """Return the series that are about `nodes`; whatever else is in an answer is left out."""
    read, known = [], frozenset(nodes)
    for each in found:
        try:
            raw = RawSeries.model_validate(each)
        except ValidationError:
            continue
        metric = names.by_series.get(raw.metric.get("__name__", ""))
        if metric is not None and (series := _series(raw, metric, known, labels)) is not None:
            read.append(series)
    return read


def node_in(value: str, nodes: frozenset[NodeName]) -> str:
    """Return which of `nodes` a label names, with or without a domain and a port; empty when none."""
    host = value.rpartition(":")[0] if value.rpartition(":")[2].isdecimal() and ":" in value else value
    if host in nodes:
        return host
    return short if (short := host.partition(".")[0]) in nodes else ""


def as_samples(series: Sequence[Series], until: datetime, stale_after_scrapes: int) -> tuple[MetricSample, ...]:
    """Return the samples for attribution: of what tells something as many as there is room for. Of a job that is too
    big for `MAX_SAMPLES` there are more: a part of its nodes would tell something else than all of them."""
    telling = [s for s in series if s.tells(until, stale_after_scrapes)]
    most = max(1, min(MOST_OF_A_SERIES, MAX_SAMPLES // max(1, len(telling))))
    return tuple(
        MetricSample(at=at, host=s.node, text=f"{s.metric.name}{{{s.labels}}} {value:.15g}")
        for s in telling
        for at, value in _thinned(s, most)
    )


def _series(raw: RawSeries, metric: Metric, nodes: frozenset[NodeName], labels: MetricLabels) -> Series | None:
    of_gpus = metric.group.of_gpus
    node = node_in(raw.metric.get(labels.gpu_node if of_gpus else labels.host_node, ""), nodes)
    scale = metric.scale_of(raw.metric["__name__"])
    # An exporter that stamps its samples itself may be scraped several times between two of them.
    points = tuple({at: value * scale for at, value in _points(raw)}.items())
    if not node or not points:
        return None
    kept = [("Hostname", node)]
    if of_gpus:
        kept += [("gpu", raw.metric.get(labels.gpu) or raw.metric.get("uuid", ""))]
        kept += [("hpc_job", raw.metric.get(labels.job_id, ""))]
    kept += [(label, raw.metric.get(label, "")) for label in _WHICH if not of_gpus]
    if raw.metric["__name__"] != metric.name:
        kept += [("series", raw.metric["__name__"])]
    told = ",".join(f'{label}="{value.translate(_UNSAFE)[:_MAX_LABEL_CHARS]}"' for label, value in kept if value)
    return Series(metric, node, told, points)


def _points(raw: RawSeries) -> Iterable[tuple[datetime, float]]:
    for at_s, text in raw.values:
        try:
            value = float(text)
            at = datetime.fromtimestamp(at_s, UTC)
        except (ValueError, OverflowError, OSError):
            continue
        if math.isfinite(value):
            yield at, value


def _thinned(series: Series, most: int) -> Sequence[tuple[datetime, float]]:
    """Keep what tells most: both ends of the newest changes, or the beginning and the end with some in between."""
    points = series.points
    if series.metric.kind is Kind.LAST:
        changed = [n for n in range(1, len(points)) if points[n][1] != points[n - 1][1]]
        return [points[n] for n in sorted({m for n in changed[-max(1, most // 2) :] for m in (n - 1, n)})]
    if series.metric.kind is Kind.COUNTER:
        return [points[0], points[-1]]
    if most == 1 or len(points) <= most:
        return points[-most:]
    return [points[round(n * (len(points) - 1) / (most - 1))] for n in range(most)]
