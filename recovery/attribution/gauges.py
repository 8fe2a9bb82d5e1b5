"""Samples of metrics, parsed: DCGM's of GPUs and node_exporter's of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import re2

from recovery.attribution.incident import JobFacts, MetricSample
from recovery.attribution.ranks import RankMap

_SAMPLE = re2.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([-+0-9.eEinfaN]+)")
_LABEL = re2.compile(r'(\w+)="([^"]*)"')

UTILISATION = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"})
TENSOR_ACTIVITY = frozenset({"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"})
CLOCK = frozenset({"DCGM_FI_DEV_SM_CLOCK"})
THROTTLE_REASONS = frozenset({"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"})
OVER_HEAT = frozenset({"DCGM_FI_DEV_THERMAL_VIOLATION"})
OVER_POWER = frozenset({"DCGM_FI_DEV_POWER_VIOLATION"})
"""Counters of the time for which a limit held the clock back."""
PCIE_GENERATION = frozenset({"DCGM_FI_DEV_PCIE_LINK_GEN"})
PCIE_WIDTH = frozenset({"DCGM_FI_DEV_PCIE_LINK_WIDTH"})
LAST_XID = frozenset({"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"})
REMAP_FAILURE = frozenset({"DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"})

_SMALLER_PARTS = ("device", "port", "mountpoint")


@dataclass(frozen=True, slots=True)
class Gauge:
    """One sample of one GPU, or of one port or file system of a host."""

    name: str
    node: str
    gpu: str
    """The GPU's number; of a host's series what tells it from the host's others."""
    value: float
    at: datetime | None
    text: str


def read_gauges(metrics: Iterable[MetricSample], ranks: RankMap, facts: JobFacts) -> tuple[Gauge, ...]:
    """Parse all samples of the incident; what is not in Prometheus' text form, or another job's, is left out."""
    return tuple(filter(None, (_gauge(sample, ranks, facts) for sample in metrics)))


def _gauge(sample: MetricSample, ranks: RankMap, facts: JobFacts) -> Gauge | None:
    found = _SAMPLE.match(sample.text[:4_096])
    if not found:
        return None
    labels = dict(_LABEL.findall(found.group(2) or ""))
    job = labels.get("hpc_job", "")
    if job and not facts.is_named(job):
        return None
    host = labels.get("Hostname") or labels.get("hostname") or sample.host
    try:
        value = float(found.group(3))
    except ValueError:
        return None
    gpu = labels.get("gpu") or "/".join(labels.get(part, "") for part in _SMALLER_PARTS)
    return Gauge(found.group(1), ranks.node(host), gpu, value, sample.at, sample.text)


def new_xids(gauges: Sequence[Gauge]) -> tuple[Gauge, ...]:
    """Return the samples at which a GPU's last-Xid gauge changed to another code. The gauge keeps its value for ever
    after: standing at one is no event."""
    latest: dict[tuple[str, str], float] = {}
    changed: list[Gauge] = []
    for gauge in gauges:
        if gauge.name not in LAST_XID:
            continue
        before = latest.get((gauge.node, gauge.gpu))
        if before is not None and gauge.value not in (0.0, before):
            changed.append(gauge)
        latest[(gauge.node, gauge.gpu)] = gauge.value
    return tuple(changed)
