"""What processes say of themselves: CUDA errors of their own GPU, exceptions of their own code, data or files."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.attribution.faults import Fault, faults_of_processes, first_of, quoted, together
from recovery.attribution.finding import Finding
from recovery.attribution.locate import Location, locate, named_nodes
from recovery.attribution.scene import Scene
from recovery.attribution.spread import is_widespread, lost_together
from recovery.attribution.words import in_words
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import Role, Witness

_AMBIGUOUS = frozenset({"cuda_launch_failure", "cuda_illegal_access", "cuda_oom", "nccl_cuda_error"})
"""Errors that a bad GPU causes as well as a program."""

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
    "program_not_found": (Category.STORAGE, "path_missing_on_one_node"),
}
"""What speaks of a node's mounts, image or driver when exactly one node says it: by cause, or by the exception that
every process of the node raises."""
_OF_THE_SCRIPT = frozenset({"program_not_found"})
"""What the batch script may say, which runs on the first node only."""
_PROCESSES_THAT_MAKE_A_NODE = 4


def process_fault(scene: Scene) -> Finding | None:
    """Return the first fault that a process reported of itself."""
    faults = faults_of_processes(scene)
    if not faults:
        return None
    first = first_of(faults)
    alike = [f for f in faults if f.cause == first.cause]
    if finding := _of_one_nodes_environment(first, alike, scene):
        return finding
    if first.exception is not None:
        return _exception(first, alike, scene)
    if first.cause in _AMBIGUOUS and (finding := _bad_gpu_behind_it(first, alike, scene)):
        return finding
    if origin := _repeated_by_all(scene):
        alike = [f for f in alike if f.reading.node in origin] or alike
        first = alike[0]
    nodes = {f.reading.node for f in alike if f.reading.node}
    if _is_everybodys(first, alike, nodes, scene):
        return _everywhere(first, alike, nodes, scene)
    return _local(first, alike, scene) if first.blames_reporter else _nobody(first, alike, scene)


def _repeated_by_all(scene: Scene) -> set[str]:
    """The nodes of the ranks whose errors a distributed checkpoint has every rank repeat; empty without such."""
    named = scene.where(lambda r: r.cause == "checkpoint_failed_on_ranks" and not scene.survived(r))
    return {node for r in named for node in named_nodes(r, scene)}


def _exception(first: Fault, alike: Sequence[Fault], scene: Scene) -> Finding:
    same = [f for f in alike if f.place == first.place]
    processes = {f.reading.process for f in same}
    everywhere = len(processes) > 1 and (len({f.reading.node for f in same}) > 1 or len(scene.nodes) == 1)
    what = f"{first.exception.name} at {first.exception.place}" if first.exception else "an exception"
    return Finding(
        category=first.category,
        cause="python_exception_all_ranks" if everywhere else "python_exception_one_rank",
        action=first.action,
        summary=f"the program's own code raised {what}" + (" on several ranks" if everywhere else ""),
        evidence=quoted(same),
        confidence=Confidence.ESTABLISHED if everywhere else Confidence.LIKELY,
        place=first.place,
        ruled_out=_bystander(first, scene),
    )


def _of_one_nodes_environment(first: Fault, alike: Sequence[Fault], scene: Scene) -> Finding | None:
    """One node misses what all other nodes have."""
    what = first.exception.name if first.exception else first.cause
    if what not in _OF_THE_NODE or len(scene.nodes) < 2:
        return None
    same = [f for f in alike if f.place == first.place]
    nodes = {f.reading.node for f in same}
    if len(nodes) != 1 or "" in nodes or (what in _OF_THE_SCRIPT and scene.nodes[0] in nodes):
        return None
    needed = max(2, scene.ranks.ranks_per_node or _PROCESSES_THAT_MAKE_A_NODE) if first.exception else 1
    if len({f.reading.process for f in same}) < needed:
        return None
    category, cause = _OF_THE_NODE[what]
    return Finding(
        category=category,
        cause=cause,
        action=Action.RESTART_EXCLUDE,
        summary=f"every process of one node, and of no other, raised {what}"
        if first.exception
        else f"on one node, and on no other: {in_words(what)}",
        evidence=quoted(same),
        culprits=tuple(nodes),
        place=first.place,
    )


def _bad_gpu_behind_it(first: Fault, alike: Sequence[Fault], scene: Scene) -> Finding | None:
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
        evidence=(*hardware[-3:], *quoted(alike)[:3]),
        culprits=(node,),
    )


def _nobody(first: Fault, alike: Sequence[Fault], scene: Scene) -> Finding:
    return Finding(
        category=first.category,
        cause=first.cause,
        action=first.action,
        summary=in_words(first.cause),
        evidence=quoted(alike),
        place=first.place,
        ruled_out=_bystander(first, scene),
    )


def _is_everybodys(first: Fault, alike: Sequence[Fault], nodes: set[str], scene: Scene) -> bool:
    signature = first.reading.signature
    if not (first.blames_reporter or signature.everywhere) or signature.echoed:
        return False
    return is_widespread(nodes, scene) or lost_together(f.reading for f in alike)


def _everywhere(first: Fault, alike: Sequence[Fault], nodes: set[str], scene: Scene) -> Finding:
    signature = first.reading.signature
    count = f"{len(nodes)} of {len(scene.nodes)} nodes"
    return Finding(
        category=signature.everywhere or Category.SOFTWARE_STACK,
        cause=first.cause,
        action=signature.everywhere_action,
        summary=f"{in_words(first.cause)} on {count}",
        evidence=quoted(alike),
        unlocated_because=f"{count} report the same, so no single node is at fault",
        place=first.place,
    )


def _local(first: Fault, alike: Sequence[Fault], scene: Scene) -> Finding:
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
        evidence=quoted(alike),
        culprits=culprits,
        confidence=Confidence.ESTABLISHED if culprits else Confidence.LIKELY,
        unlocated_because=location.because,
        located_by=location.how,
        place=first.place,
    )


def _struck_alike(first: Fault, alike: Sequence[Fault]) -> set[str]:
    """Further nodes that report the same of themselves at once, unless such an error is what peers echo."""
    if first.reading.signature.echoed or first.cause in _AMBIGUOUS:
        return set()
    return {f.reading.node for f in alike if f.reading.node and together(first, f)}


def _printed_elsewhere_at_once(first: Fault, alike: Sequence[Fault]) -> bool:
    at = first.reading.at
    return at is not None and any(f.reading.at == at and f.reading.node != first.reading.node for f in alike)


def _bystander(first: Fault, scene: Scene) -> tuple[str, ...]:
    node = first.reading.node
    if not node or not any(r.is_a(Role.CASCADE, Witness.PEER) for r in scene.readings):
        return ()
    return (f"{node}: the others' network errors name it because its process had ended, not because it is bad",)
