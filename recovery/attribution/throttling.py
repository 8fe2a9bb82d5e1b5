"""GPUs that their own protection slows down: which node stands out, and why the clock is held back."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from recovery.attribution.gauges import CLOCK, THROTTLE_REASONS, Gauge

_SLOW_CLOCK_SHARE = 0.85
_HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _POWER_BRAKE = 0x8, 0x20, 0x40, 0x80
"""Of NVML's clocks-event-reasons mask. The others are wishes of the operator, or of a GPU that idles."""
_PROTECTION = _HW_SLOWDOWN | _SW_THERMAL | _HW_THERMAL | _POWER_BRAKE

GpuId = tuple[str, str]


def slow_gpu(gauges: Iterable[Gauge]) -> tuple[str, tuple[Gauge, ...]]:
    """Return the node of the GPUs whose clock stays far below the others', or which alone are held back."""
    kept = list(gauges)
    slow = _far_below(_by_gpu(kept, CLOCK)) or _held_back(_by_gpu(kept, THROTTLE_REASONS))
    nodes = {node for node, _ in slow}
    if len(nodes) != 1:
        return "", ()
    telling = [*_by_gpu(kept, CLOCK).items(), *_by_gpu(kept, THROTTLE_REASONS).items()]
    return nodes.pop(), tuple(samples[-1] for gpu, samples in telling if gpu in slow)


def why_slow(gauges: Iterable[Gauge]) -> str:
    """Return the cause that a GPU's own reasons name; the commonest one where they are not known."""
    reasons = 0
    for gauge in gauges:
        if gauge.name in THROTTLE_REASONS:
            reasons |= _mask(gauge)
    return "gpu_power_brake" if reasons & _POWER_BRAKE else "gpu_thermal_throttle"


def _by_gpu(gauges: Iterable[Gauge], names: frozenset[str]) -> dict[GpuId, list[Gauge]]:
    found: dict[GpuId, list[Gauge]] = defaultdict(list)
    for gauge in gauges:
        if gauge.name in names and gauge.node:
            found[(gauge.node, gauge.gpu)].append(gauge)
    return found


def _far_below(clocks: dict[GpuId, list[Gauge]]) -> set[GpuId]:
    if len(clocks) < 3:
        return set()
    medians = {gpu: statistics.median(g.value for g in samples) for gpu, samples in clocks.items()}
    usual = statistics.median(medians.values())
    return {gpu for gpu, value in medians.items() if value < _SLOW_CLOCK_SHARE * usual}


def _held_back(reasons: dict[GpuId, list[Gauge]]) -> set[GpuId]:
    """The GPUs that protect themselves most of the time, where most others never do."""
    held = {
        gpu for gpu, samples in reasons.items() if 2 * sum(1 for g in samples if _mask(g) & _PROTECTION) > len(samples)
    }
    return held if len(reasons) >= 3 and 2 * len(held) < len(reasons) else set()


def _mask(gauge: Gauge) -> int:
    return int(gauge.value) if 0 <= gauge.value < 2**31 else 0
