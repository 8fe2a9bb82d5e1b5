"""GPUs that their own protection, or a narrow PCIe link, slows down: which node stands out, and why."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable

from recovery.attribution.gauges import (
    CLOCK,
    OVER_HEAT,
    OVER_POWER,
    PCIE_GENERATION,
    PCIE_WIDTH,
    THROTTLE_REASONS,
    Gauge,
)

_SLOW_CLOCK_SHARE = 0.85
_HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _POWER_BRAKE = 0x8, 0x20, 0x40, 0x80
"""Of NVML's clocks-event-reasons mask. The others are wishes of the operator, or of a GPU that idles."""
_PROTECTION = _HW_SLOWDOWN | _SW_THERMAL | _HW_THERMAL | _POWER_BRAKE
_MANY_TIMES = 10
_LEAST_SHARE = 0.05
"""Of the time between two samples. Older releases of DCGM count microseconds, newer ones nanoseconds."""

GpuId = tuple[str, str]
ByGpu = dict[GpuId, list[Gauge]]


def slow_gpu(gauges: Iterable[Gauge]) -> tuple[str, tuple[Gauge, ...]]:
    """Return the node of the GPUs that stand out by the first sign that any shows, with the samples that tell."""
    kept = list(gauges)
    for names, standing_out in _SIGNS:
        slow = standing_out(_by_gpu(kept, names))
        if slow:
            nodes = {node for node, _ in slow}
            telling = _by_gpu(kept, names | THROTTLE_REASONS).items()
            return (nodes.pop(), _newest(telling, slow)) if len(nodes) == 1 else ("", ())
    return "", ()


def why_slow(gauges: Iterable[Gauge]) -> str:
    """Return the cause that a GPU's own gauges name; the commonest one where they are not known."""
    told = list(gauges)
    if any(gauge.name in PCIE_GENERATION | PCIE_WIDTH for gauge in told):
        return "gpu_pcie_degraded"
    braked = any(gauge.name in THROTTLE_REASONS and _mask(gauge) & _POWER_BRAKE for gauge in told)
    return "gpu_power_brake" if braked or any(gauge.name in OVER_POWER for gauge in told) else "gpu_thermal_throttle"


def _newest(by_gpu: Iterable[tuple[GpuId, list[Gauge]]], slow: set[GpuId]) -> tuple[Gauge, ...]:
    """The newest sample of each series of the slow GPUs."""
    return tuple({(gpu, g.name): g for gpu, samples in by_gpu if gpu in slow for g in samples}.values())


def _by_gpu(gauges: Iterable[Gauge], names: frozenset[str]) -> ByGpu:
    found: ByGpu = defaultdict(list)
    for gauge in gauges:
        if gauge.name in names and gauge.node:
            found[(gauge.node, gauge.gpu)].append(gauge)
    return found


def _far_below(levels: ByGpu) -> set[GpuId]:
    if len(levels) < 3:
        return set()
    medians = {gpu: statistics.median(g.value for g in samples) for gpu, samples in levels.items()}
    usual = statistics.median(medians.values())
    return {gpu for gpu, value in medians.items() if value < _SLOW_CLOCK_SHARE * usual}


def _held_back(reasons: ByGpu) -> set[GpuId]:
    """The GPUs that protect themselves most of the time, where most others never do."""
    held = {
        gpu for gpu, samples in reasons.items() if 2 * sum(1 for g in samples if _mask(g) & _PROTECTION) > len(samples)
    }
    return held if len(reasons) >= 3 and 2 * len(held) < len(reasons) else set()


def _held_longest(violations: ByGpu) -> set[GpuId]:
    """The GPUs that a limit held back for a good part of the time, and many times longer than the others."""
    grown = {gpu: samples[-1].value - samples[0].value for gpu, samples in violations.items()}
    if len(grown) < 3:
        return set()
    usual = statistics.median(grown.values())
    return {
        gpu
        for gpu, samples in violations.items()
        if grown[gpu] > max(_MANY_TIMES * usual, _LEAST_SHARE * _elapsed_us(samples))
    }


def _elapsed_us(samples: list[Gauge]) -> float:
    first, last = samples[0].at, samples[-1].at
    return (last - first).total_seconds() * 1e6 if first and last else 0.0


_SIGNS: tuple[tuple[frozenset[str], Callable[[ByGpu], set[GpuId]]], ...] = (
    (CLOCK, _far_below),
    (THROTTLE_REASONS, _held_back),
    (OVER_HEAT, _held_longest),
    (OVER_POWER, _held_longest),
    (PCIE_GENERATION, _far_below),
    (PCIE_WIDTH, _far_below),
)


def _mask(gauge: Gauge) -> int:
    return int(gauge.value) if 0 <= gauge.value < 2**31 else 0
