"""What machines say of themselves: kernels, drivers, NICs, node checks. They outrank what processes complain about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from recovery.attribution.finding import Finding
from recovery.attribution.locate import locate
from recovery.attribution.memory import own_process_too_big
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.spread import is_widespread, lost_together
from recovery.attribution.words import in_words
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import NOBODY, Role, Witness

_AFTERMATH = timedelta(seconds=60)
_AT_ONCE = timedelta(seconds=30)
_PRECEDENCE = (
    Category.HARDWARE_GPU,
    Category.HARDWARE_NETWORK,
    Category.HOST,
    Category.STORAGE,
    Category.SOFTWARE_STACK,
    Category.USER_CODE,
)
_SHARED = {
    Category.HARDWARE_NETWORK: ("a switch or the fabric", Action.RESTART),
    Category.STORAGE: ("the file system's server", Action.WAIT),
}


def host_fault(scene: Scene) -> Finding | None:
    """Return the first fault that a machine of the allocation reported of itself and that training did not survive."""
    failures = [e.first.at for e in scene.exceptions if e.first.at and not scene.survived(e.last)]
    failed_at = min(failures, default=None)
    faults = [r for r in scene.roots(Witness.HOST) if _of_this_job(r, scene) and not _came_after(r, failed_at)]
    if not faults:
        return None
    first = min(faults, key=_explains_most)
    alike = [r for r in faults if r.cause == first.cause]
    if first.signature.culprit == NOBODY:
        return _of_the_job_itself(first, alike)
    if is_widespread({r.node for r in alike if r.node}, scene) or lost_together(alike):
        return _everywhere(first, alike, scene)
    if first.cause == "host_oom" and (finding := own_process_too_big(first, scene)):
        return finding
    return _on_one_node(first, faults, scene)


def _of_this_job(reading: Reading, scene: Scene) -> bool:
    """A line that its source attributes to a machine outside of the allocation is another job's."""
    return bool(reading.node or not reading.line.host or not scene.ranks.allocation_known)


def _came_after(reading: Reading, failed_at: datetime | None) -> bool:
    """Whether processes had failed by themselves clearly earlier: then the machine's line is of the aftermath."""
    if reading.at is None or failed_at is None or reading.signature.fatal:
        return False
    return reading.at - failed_at > _AFTERMATH


def _explains_most(reading: Reading) -> tuple[bool, int, int]:
    """Order faults: fatal ones first, then by what breaks what, then as they came."""
    category = reading.signature.category
    precedence = _PRECEDENCE.index(category) if category in _PRECEDENCE else len(_PRECEDENCE)
    return (not reading.signature.fatal, precedence, reading.order)


def _of_the_job_itself(first: Reading, alike: Sequence[Reading]) -> Finding:
    return Finding(
        category=first.signature.category,
        cause=first.cause,
        action=first.signature.action,
        summary=in_words(first.cause),
        evidence=tuple(alike),
        confidence=Confidence.ESTABLISHED,
    )


def _everywhere(first: Reading, alike: Sequence[Reading], scene: Scene) -> Finding:
    shared, action = _SHARED.get(first.signature.category, ("something that they share", Action.RESTART))
    by_node = {r.node: r for r in reversed(alike)}
    count = f"{len(by_node)} of {len(scene.nodes)} nodes"
    return Finding(
        category=first.signature.category,
        cause=f"{first.cause}_on_many_nodes",
        action=action,
        summary=f"{in_words(first.cause)} on {count}: {shared}, no single node",
        evidence=tuple(by_node.values()),
        confidence=Confidence.ESTABLISHED,
        unlocated_because=f"{count} report the same, so {shared} is at fault",
    )


def _on_one_node(first: Reading, faults: Sequence[Reading], scene: Scene) -> Finding:
    location = locate(first, scene)
    culprits = scene.in_order({location.node} | _struck_alike(first, faults)) if location.node else ()
    same = [r for r in faults if r is first or r.node in (culprits or ("",))]
    more = [r for r in scene.readings if r.node in culprits and r.is_a(Role.CONFIRMATION, Witness.HOST)]
    felt = [r for r in scene.roots(Witness.PROCESS) if r.node in culprits]
    return Finding(
        category=first.signature.category,
        cause=first.cause,
        action=first.signature.action if culprits else Action.RESTART,
        summary=in_words(first.cause),
        evidence=(*same, *more, *felt[:3]),
        culprits=culprits,
        confidence=Confidence.ESTABLISHED if culprits and first.node else Confidence.LIKELY,
        unlocated_because=location.because,
        located_by=location.how,
    )


def _struck_alike(first: Reading, faults: Sequence[Reading]) -> set[str]:
    """Further nodes whose own GPUs failed in the same way at the same time, as after a power or cooling failure."""
    if not first.signature.fatal or not first.speaks_of(Category.HARDWARE_GPU) or first.at is None:
        return set()
    return {r.node for r in faults if r.cause == first.cause and r.node and r.at and abs(r.at - first.at) <= _AT_ONCE}
