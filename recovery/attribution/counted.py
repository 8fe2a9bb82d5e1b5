"""What counters of hosts, links and memory show: only that one grew during the attempt says anything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from recovery.attribution.gauges import Gauge

UNCORRECTABLE_ECC = frozenset(
    {
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    }
)
LINK_LOST = frozenset({"node_infiniband_link_downed_total"})
"""That a port went down. Symbol and packet errors are everywhere, and a port counts them for its peer's faults too."""
LINK_TROUBLE = frozenset(
    {
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "node_infiniband_link_error_recovery_total",
        "node_infiniband_port_errors_received_total",
    }
)
OOM_KILLS = frozenset({"node_vmstat_oom_kill"})
FREE_SPACE = frozenset({"node_filesystem_avail_bytes"})


def grown(gauges: Iterable[Gauge], names: frozenset[str]) -> tuple[Gauge, ...]:
    """Return the newest sample of each counter that is higher than its oldest one. A lower one was begun anew."""
    series: dict[tuple[str, str, str], list[Gauge]] = defaultdict(list)
    for gauge in gauges:
        if gauge.name in names and gauge.node:
            series[(gauge.name, gauge.node, gauge.gpu)].append(gauge)
    return tuple(samples[-1] for samples in series.values() if samples[-1].value > samples[0].value)


def only_node(gauges: Sequence[Gauge]) -> str:
    """Return the one node that all `gauges` are of; empty where there are several, or none."""
    nodes = {gauge.node for gauge in gauges}
    return nodes.pop() if len(nodes) == 1 else ""


def what_hosts_counted(gauges: Sequence[Gauge]) -> tuple[str, tuple[str, ...]]:
    """Return what counters and free space add to an end that no line explains, with the samples; empty for nothing."""
    killed = grown(gauges, OOM_KILLS)
    if killed:
        nodes = ", ".join(sorted({gauge.node for gauge in killed})[:4])
        return f"the kernel killed for want of memory on {nodes}, whose is not known", _texts(killed)
    newest = {(g.node, g.gpu): g for g in gauges if g.name in FREE_SPACE and g.node}
    full = tuple(gauge for gauge in newest.values() if gauge.value <= 0)
    if full:
        nodes = ", ".join(sorted({gauge.node for gauge in full})[:4])
        return f"a file system is full on {nodes}", _texts(full)
    troubled = grown(gauges, LINK_TROUBLE)
    if troubled:
        nodes = ", ".join(sorted({gauge.node for gauge in troubled})[:4])
        return f"links counted errors on {nodes}", _texts(troubled)
    return "", ()


def _texts(gauges: Sequence[Gauge]) -> tuple[str, ...]:
    return tuple(gauge.text for gauge in gauges[:4])
