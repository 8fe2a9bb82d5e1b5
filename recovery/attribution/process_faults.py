"""What processes say of themselves: CUDA errors of their own GPU, exceptions of their own code, data or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from recovery.attribution.endings import without_harmless
from recovery.attribution.finding import Finding
from recovery.attribution.locate import Location, locate
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.spread import is_widespread, lost_together
from recovery.attribution.tracebacks import PythonException
from recovery.attribution.words import in_words
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import NOBODY, Role, Witness

_AT_ONCE = timedelta(seconds=5)
_PRECEDENCE = (
    Category.HARDWARE_GPU,
    Category.HOST,
    Category.SOFTWARE_STACK,
    Category.STORAGE,
    Category.HARDWARE_NETWORK,
    Category.DATA,
    Category.NUMERICAL,
    Category.INFRA_TRANSIENT,
    Category.USER_CODE,
)
_AMBIGUOUS = frozenset({"cuda_launch_failure", "cuda_illegal_access", "cuda_oom", "nccl_cuda_error"})
"""Errors that a bad GPU causes as well as a program."""

_SUMS_UP = frozenset({"nccl_system_error", "nccl_cuda_error"})
"""What NCCL makes of an error that the same process mostly tells by itself."""

_OF_THE_NODE = {
    "FileNotFoundError": (Category.STORAGE, "path_missing_on_one_node"),
    "PermissionError": (Category.STORAGE, "path_missing_on_one_node"),
    "NotADirectoryError": (Category.STORAGE, "path_missing_on_one_node"),
    "ModuleNotFoundError": (Category.SOFTWARE_STACK, "environment_of_one_node"),
    "ImportError": (Category.SOFTWARE_STACK, "environment_of_one_node"),
    "library_mismatch": (Category.SOFTWARE_STACK, "environment_of_one_node"),
    "container_image_file_missing": (Category.STORAGE, "path_missing_on_one_node"),
    "container_mount_missing": (Category.STORAGE, "path_missing_on_one_node"),
    "cuda_driver_too_old": (Category.HOST, "cuda_driver_too_old"),
}
"""What speaks of a node's mounts, image or driver when exactly one node says it: by cause, or by the exception that
every process of the node raises."""
_PROCESSES_THAT_MAKE_A_NODE = 4


@dataclass(frozen=True)
class _Fault:
    """A root line of a process: known to the catalogue, or an exception that it does not know."""

    reading: Reading
    category: Category
    cause: str
    action: Action
    blames_reporter: bool
    place: str
    exception: PythonException | None = None
    """Set for what the catalogue does not know."""


def process_fault(scene: Scene) -> Finding | None:
    """Return the first fault that a process reported of itself."""
    faults = _faults(scene)
    if not faults:
        return None
    first = _first(faults)
    alike = [f for f in faults if f.cause == first.cause]
    if finding := _of_one_nodes_environment(first, alike, scene):
        return finding
    if first.exception is not None:
        return _exception(first, alike, scene)
    if first.cause in _AMBIGUOUS and (finding := _bad_gpu_behind_it(first, alike, scene)):
        return finding
    nodes = {f.reading.node for f in alike if f.reading.node}
    if _is_everybodys(first, alike, nodes, scene):
        return _everywhere(first, alike, nodes, scene)
    return _local(first, alike, scene) if first.blames_reporter else _nobody(first, alike, scene)


def _faults(scene: Scene) -> list[_Fault]:
    places = {e.last.order: e.place for e in scene.exceptions}
    unknown = {
        e.last.order: e
        for e in scene.exceptions
        if e.match is None and e.name != "SystemExit" and not scene.survived(e.last)
    }
    known = without_harmless(scene, scene.roots(Witness.PROCESS))
    told = {_process(r) for r in known if r.cause not in _SUMS_UP}
    told |= {_process(r) for r in scene.readings if r.cause == "peer_unreachable"}
    faults = [_known(r, places.get(r.order, "")) for r in known if r.cause not in _SUMS_UP or _process(r) not in told]
    faults += [_unknown(unknown[r.order]) for r in without_harmless(scene, (e.last for e in unknown.values()))]
    return sorted(faults, key=lambda f: f.reading.order)


def _known(reading: Reading, place: str) -> _Fault:
    signature = reading.signature
    return _Fault(
        reading=reading,
        category=signature.category,
        cause=signature.cause,
        action=signature.action,
        blames_reporter=signature.culprit != NOBODY,
        place=place,
    )


def _unknown(exception: PythonException) -> _Fault:
    return _Fault(
        reading=exception.last,
        category=Category.USER_CODE,
        cause="python_exception",
        action=Action.STOP,
        blames_reporter=False,
        place=f"{exception.name}@{exception.place}",
        exception=exception,
    )


def _first(faults: Sequence[_Fault]) -> _Fault:
    """The earliest; among those at once, the one that explains the others."""
    at_once = [f for f in faults if _together(faults[0], f)]
    return min(at_once, key=lambda f: (_precedence(f.category), f.reading.order))


def _together(one: _Fault, other: _Fault) -> bool:
    if one.reading.at and other.reading.at:
        return abs(other.reading.at - one.reading.at) <= _AT_ONCE
    return one.reading.rank == other.reading.rank and one.reading.node == other.reading.node


def _precedence(category: Category) -> int:
    return _PRECEDENCE.index(category) if category in _PRECEDENCE else len(_PRECEDENCE)


def _exception(first: _Fault, alike: Sequence[_Fault], scene: Scene) -> Finding:
    same = [f for f in alike if f.place == first.place]
    processes = {_process(f.reading) for f in same}
    everywhere = len(processes) > 1 and (len({f.reading.node for f in same}) > 1 or len(scene.nodes) == 1)
    what = f"{first.exception.name} at {first.exception.place}" if first.exception else "an exception"
    return Finding(
        category=first.category,
        cause="python_exception_all_ranks" if everywhere else "python_exception_one_rank",
        action=first.action,
        summary=f"the program's own code raised {what}" + (" on several ranks" if everywhere else ""),
        evidence=_some(same),
        confidence=Confidence.ESTABLISHED if everywhere else Confidence.LIKELY,
        place=first.place,
        ruled_out=_bystander(first, scene),
    )


def _of_one_nodes_environment(first: _Fault, alike: Sequence[_Fault], scene: Scene) -> Finding | None:
    """One node misses what all other nodes have."""
    what = first.exception.name if first.exception else first.cause
    if what not in _OF_THE_NODE or len(scene.nodes) < 2:
        return None
    same = [f for f in alike if f.place == first.place]
    nodes = {f.reading.node for f in same}
    if len(nodes) != 1 or "" in nodes:
        return None
    needed = max(2, scene.ranks.ranks_per_node or _PROCESSES_THAT_MAKE_A_NODE) if first.exception else 1
    if len({_process(f.reading) for f in same}) < needed:
        return None
    category, cause = _OF_THE_NODE[what]
    return Finding(
        category=category,
        cause=cause,
        action=Action.RESTART_EXCLUDE,
        summary=f"every process of one node, and of no other, raised {what}"
        if first.exception
        else f"on one node, and on no other: {in_words(what)}",
        evidence=_some(same),
        culprits=tuple(nodes),
        place=first.place,
    )


def _bad_gpu_behind_it(first: _Fault, alike: Sequence[_Fault], scene: Scene) -> Finding | None:
    """Hardware evidence on the very node, even some that training had survived, outranks an ambiguous error."""
    nodes = {f.reading.node for f in alike}
    if len(nodes) != 1 or "" in nodes:
        return None
    node = next(iter(nodes))
    everything = [r for attempt in (*scene.earlier, scene.readings) for r in attempt]
    hardware = [
        r
        for r in everything
        if r.node == node and r.is_a(Role.ROOT) and r.speaks_of(Category.HARDWARE_GPU) and r.cause not in _AMBIGUOUS
    ]
    if not hardware:
        return None
    return Finding(
        category=Category.HARDWARE_GPU,
        cause=hardware[-1].cause,
        action=Action.RESTART_EXCLUDE,
        summary=f"{in_words(first.cause)} on a node with earlier hardware trouble ({in_words(hardware[-1].cause)})",
        evidence=(*hardware[-3:], *_some(alike)[:3]),
        culprits=(node,),
    )


def _nobody(first: _Fault, alike: Sequence[_Fault], scene: Scene) -> Finding:
    return Finding(
        category=first.category,
        cause=first.cause,
        action=first.action,
        summary=in_words(first.cause),
        evidence=_some(alike),
        place=first.place,
        ruled_out=_bystander(first, scene),
    )


def _is_everybodys(first: _Fault, alike: Sequence[_Fault], nodes: set[str], scene: Scene) -> bool:
    signature = first.reading.signature
    if not (first.blames_reporter or signature.everywhere) or signature.echoed:
        return False
    return is_widespread(nodes, scene) or lost_together(f.reading for f in alike)


def _everywhere(first: _Fault, alike: Sequence[_Fault], nodes: set[str], scene: Scene) -> Finding:
    signature = first.reading.signature
    count = f"{len(nodes)} of {len(scene.nodes)} nodes"
    return Finding(
        category=signature.everywhere or Category.SOFTWARE_STACK,
        cause=first.cause,
        action=signature.everywhere_action,
        summary=f"{in_words(first.cause)} on {count}",
        evidence=_some(alike),
        unlocated_because=f"{count} report the same, so no single node is at fault",
        place=first.place,
    )


def _local(first: _Fault, alike: Sequence[_Fault], scene: Scene) -> Finding:
    location = locate(first.reading, scene)
    if first.category is Category.STORAGE and len(scene.nodes) == 1:
        location = Location("", "", "with one node in the job, the node and the file system cannot be told apart")
    if first.reading.signature.echoed and _printed_elsewhere_at_once(first, alike):
        location = Location(
            "", "", "several nodes printed it in the same moment, and only one of them can be its origin"
        )
    culprits = scene.in_order({location.node} | _struck_alike(first, alike)) if location.node else ()
    return Finding(
        category=first.category,
        cause=first.cause,
        action=first.action if culprits else Action.RESTART,
        summary=in_words(first.cause),
        evidence=_some(alike),
        culprits=culprits,
        confidence=Confidence.ESTABLISHED if culprits else Confidence.LIKELY,
        unlocated_because=location.because,
        located_by=location.how,
        place=first.place,
    )


def _struck_alike(first: _Fault, alike: Sequence[_Fault]) -> set[str]:
    """Further nodes that report the same of themselves at once, unless such an error is what peers echo."""
    if first.reading.signature.echoed or first.cause in _AMBIGUOUS:
        return set()
    return {f.reading.node for f in alike if f.reading.node and _together(first, f)}


def _printed_elsewhere_at_once(first: _Fault, alike: Sequence[_Fault]) -> bool:
    at = first.reading.at
    return at is not None and any(f.reading.at == at and f.reading.node != first.reading.node for f in alike)


def _bystander(first: _Fault, scene: Scene) -> tuple[str, ...]:
    node = first.reading.node
    if not node or not any(r.is_a(Role.CASCADE, Witness.PEER) for r in scene.readings):
        return ()
    return (f"{node}: the others' network errors name it because its process had ended, not because it is bad",)


def _process(reading: Reading) -> tuple[str, int | None, int | None]:
    return (reading.node, reading.rank, reading.task)


def _some(faults: Sequence[_Fault]) -> tuple[Reading, ...]:
    return tuple(f.reading for f in faults[:8])
