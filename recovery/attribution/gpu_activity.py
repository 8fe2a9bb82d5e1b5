"""What each GPU was doing at last: work, spin in a collective for others that never come, or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from recovery.attribution.gauges import TENSOR_ACTIVITY, UTILISATION, Gauge

_BUSY = 90.0
_IDLE = 5.0
_WORKING = 0.02
"""Share of the time in which tensor cores do something; NCCL's kernels keep a GPU busy without any."""


class Doing(Enum):
    """What a GPU does."""

    WORKS = "works"
    SPINS = "spins"
    IDLES = "idles"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """One GPU's last samples."""

    node: str
    utilisation: Gauge
    tensor: Gauge | None

    @property
    def doing(self) -> Doing:
        """What they show. Without tensor activity a busy GPU counts as spinning: then a hang is known otherwise."""
        if self.tensor is not None and self.tensor.value >= _WORKING:
            return Doing.WORKS
        if self.utilisation.value >= _BUSY:
            return Doing.SPINS
        return Doing.IDLES if self.utilisation.value <= _IDLE else Doing.UNCLEAR

    @property
    def texts(self) -> tuple[str, ...]:
        """The samples, to be quoted."""
        return tuple(gauge.text for gauge in (self.utilisation, self.tensor) if gauge is not None)


def activities(gauges: Iterable[Gauge]) -> tuple[GpuActivity, ...]:
    """Return the newest activity of every GPU whose use is known."""
    used: dict[tuple[str, str], Gauge] = {}
    worked: dict[tuple[str, str], Gauge] = {}
    for gauge in gauges:
        if gauge.node and gauge.name in UTILISATION:
            used[(gauge.node, gauge.gpu)] = gauge
        elif gauge.node and gauge.name in TENSOR_ACTIVITY:
            worked[(gauge.node, gauge.gpu)] = gauge
    return tuple(GpuActivity(gpu[0], gauge, worked.get(gpu)) for gpu, gauge in used.items())


def idle_node(gauges: Iterable[Gauge]) -> tuple[str, tuple[str, ...]]:
    """Return the one node with idle GPUs while all others spin at full use: it never entered the collective. Where the
    others work there is nothing that they wait for."""
    by_node: dict[str, list[GpuActivity]] = defaultdict(list)
    for activity in activities(gauges):
        by_node[activity.node].append(activity)
    idle = [node for node, gpus in by_node.items() if any(gpu.doing is Doing.IDLES for gpu in gpus)]
    spinning = [node for node, gpus in by_node.items() if all(gpu.doing is Doing.SPINS for gpu in gpus)]
    if len(idle) != 1 or len(spinning) != len(by_node) - 1 or not spinning:
        return "", ()
    idlers = [gpu.utilisation.text for gpu in by_node[idle[0]] if gpu.doing is Doing.IDLES]
    return idle[0], (*idlers, *by_node[spinning[0]][0].texts)


def all_alike(gauges: Iterable[Gauge]) -> tuple[Doing, tuple[str, ...]]:
    """Return what all GPUs do where they do the same and tensor activity tells work from spinning; else `UNCLEAR`."""
    gpus = activities(gauges)
    doings = {gpu.doing for gpu in gpus}
    if len(gpus) < 2 or len(doings) != 1 or any(gpu.tensor is None for gpu in gpus):
        return Doing.UNCLEAR, ()
    return doings.pop(), gpus[0].texts + gpus[-1].texts
