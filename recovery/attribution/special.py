"""Tools that tell ranks apart in words of their own: NCCL's versions and networks, DLRover's node check, JAX's and
NVRx's heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.locate import named_nodes
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.spread import is_widespread
from recovery.attribution.words import in_words
from recovery.model import Action, Category, Confidence, SymptomKind
from recovery.signatures.catalogue import Witness

_NUMBER = re2.compile(r"\d+")


def version_mismatch(scene: Scene) -> Finding | None:
    """Ranks run different NCCL versions: the smaller group has the wrong image."""
    lines = [r for r in scene.roots() if r.cause == "nccl_version_mismatch"]
    if not lines:
        return None
    versions: dict[int, str] = {}
    for r in lines:
        versions[int(r.field("first"))] = r.field("first_version")
        versions[int(r.field("second"))] = r.field("second_version")
    counts = Counter(versions.values()).most_common()
    minority = {rank for rank, version in versions.items() if version == counts[-1][0]}
    nodes = tuple(node for node in scene.nodes if node in {scene.ranks.of_rank(rank) for rank in minority})
    clear = counts[-1][1] < counts[0][1] and 0 < len(nodes) * 2 < len(scene.nodes)
    return Finding(
        category=Category.SOFTWARE_STACK,
        cause="nccl_version_mismatch",
        action=Action.RESTART_EXCLUDE if clear else Action.STOP,
        summary="ranks run different NCCL versions" + (": the smaller group has the wrong image" if clear else ""),
        evidence=tuple(lines[:4]),
        culprits=nodes if clear else (),
        confidence=Confidence.ESTABLISHED,
        unlocated_because="" if clear else "neither version is clearly the minority's",
        place="nccl version",
    )


def odd_network(scene: Scene) -> Finding | None:
    """Before the first iteration: NCCL found another network on few nodes than on the others, so that they never
    connect. What those few lack is at fault."""
    if scene.iterations:
        return None
    lines = scene.where(lambda r: r.cause == "nccl_network" and bool(r.node))
    network_of = {r.node: r.field("network") for r in lines}
    counts = Counter(network_of.values()).most_common()
    if len(counts) != 2 or counts[1][1] * 2 >= len(scene.nodes) or counts[1][1] == counts[0][1]:
        return None
    usual, odd = counts[0][0], counts[1][0]
    nodes = scene.in_order({node for node, network in network_of.items() if network == odd})
    return Finding(
        category=Category.HARDWARE_NETWORK,
        cause="network_device_missing",
        action=Action.RESTART_EXCLUDE,
        summary=f"NCCL uses the network {odd} there and {usual} on all other nodes, which do not connect",
        evidence=tuple(r for r in lines if r.node in nodes)[:4],
        culprits=nodes,
        place="nccl network",
    )


def failed_node_check(scene: Scene) -> Finding | None:
    """DLRover's pairwise check: what it says after the last round counts."""
    lines = [r for r in scene.roots() if r.signature.id == "dlrover-fault-nodes"]
    if not lines:
        return None
    last = lines[-1]
    numbers = [int(n) for n in _NUMBER.findall(last.field("faulty"))[::2] or _NUMBER.findall(last.field("fault_ranks"))]
    nodes = tuple(scene.nodes[n] for n in numbers if n < len(scene.nodes) and scene.ranks.allocation_known)
    return Finding(
        category=Category.HARDWARE_NETWORK,
        cause="network_check_failed",
        action=Action.RESTART_EXCLUDE if nodes else Action.RESTART,
        summary="DLRover's node check failed after partners were swapped",
        evidence=tuple(lines[:3]),
        culprits=nodes,
        confidence=Confidence.ESTABLISHED,
        unlocated_because="" if nodes else "the node ranks in the message have no node without an allocation",
        place="node check",
    )


def lost_task(scene: Scene) -> Finding | None:
    """A service that hears all tasks' heartbeats, or a barrier that waits for all, names those that are missing."""
    lines = tuple(scene.roots(Witness.PEER))
    if not lines:
        return None
    nodes = {node for r in lines for node in named_nodes(r, scene)} or _only_silent(lines, scene)
    culprits = tuple(node for node in scene.nodes if node in nodes) if len(nodes) * 2 <= len(scene.nodes) else ()
    return Finding(
        category=Category.HOST,
        cause=lines[0].cause,
        action=Action.RESTART_EXCLUDE if culprits else Action.RESTART,
        summary=in_words(lines[0].cause),
        evidence=lines[:4],
        culprits=culprits,
        unlocated_because="" if culprits else "the task that is named cannot be mapped to a single node",
        place="heartbeat",
    )


def _only_silent(lines: Sequence[Reading], scene: Scene) -> set[str]:
    """The node that alone does not say that a task is lost; none where several don't."""
    silent = set(scene.nodes) - {r.node for r in lines}
    return silent if len(silent) == 1 and scene.ranks.allocation_known else set()


def stopped_beating(scene: Scene) -> Finding | None:
    """NVRx's monitors: the ranks with an open section wait for the one whose heartbeats stopped outside of any."""
    missed = scene.where(lambda r: r.cause == "heartbeat_missing" and not scene.survived(r))
    silent = tuple(r for r in missed if not r.field("section"))
    nodes = scene.in_order({r.node for r in silent if r.node})
    if len(silent) == len(missed) or not nodes or is_widespread(nodes, scene):
        return None
    return Finding(
        category=Category.HOST,
        cause="heartbeat_missing",
        action=Action.RESTART_EXCLUDE,
        summary="one node's heartbeats stopped while the other ranks waited inside a section",
        evidence=(*silent[:4], *[r for r in missed if r.field("section")][:2]),
        culprits=nodes,
        symptom=SymptomKind.HANG,
        place="heartbeat",
    )
