"""Which node a line speaks of when the line itself does not say: by exits, by who complains, and about whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.signatures.catalogue import NOBODY, REPORTER, Role, Witness

_NOTHING_ELSE = "neither exits nor the other ranks' errors single out a node"


@dataclass(frozen=True)
class Location:
    """A node, or why there is none."""

    node: str
    how: str
    """By what it was located, as a clause: ``its own line names it``."""
    because: str = ""
    """Why it is unknown."""


def locate(reading: Reading, scene: Scene) -> Location:
    """Return the node that printed `reading`, or that it names as the culprit."""
    named = _named(reading, scene)
    if named:
        return Location(named, "the line names it")
    if reading.node:
        return Location(reading.node, "it printed the line")
    return _by_elimination(scene) or Location("", "", f"{_why_unknown(reading, scene)}, and {_NOTHING_ELSE}")


def _why_unknown(reading: Reading, scene: Scene) -> str:
    numbered = [
        f"{name} {number}" for name, number in (("rank", reading.rank), ("task", reading.task)) if number is not None
    ]
    if not numbered or not scene.ranks.allocation_known:
        return "no prefix tells which node printed the line"
    kind = numbered[0].split()[0]
    return f"{numbered[0]} printed the line and how {kind}s lie on nodes is not known"


def named_nodes(reading: Reading, scene: Scene) -> tuple[str, ...]:
    """Return the allocation's nodes in the field that the signature says names the culprit."""
    signature = reading.signature
    if signature.culprit in (REPORTER, NOBODY):
        return ()
    value = reading.field(signature.culprit)
    if signature.culprit == "task":
        return tuple(filter(None, [scene.ranks.of_task(int(value))] if value else []))
    if signature.culprit == "rank":
        return tuple(filter(None, [scene.ranks.of_rank(int(value))] if value else []))
    if signature.culprit == "ranks":
        return scene.in_order({scene.ranks.of_rank(int(rank)) for rank in value.split(",")})
    if signature.culprit == "peer":
        return scene.in_order({scene.ranks.of_peer(value)})
    return scene.in_order(expand(value, scene))


def expand(names: str, scene: Scene) -> frozenset[str]:
    """Return the allocation's nodes among a Slurm host list such as ``node[01-03],gpu7``."""
    found = {scene.ranks.node(name) for name in names.split(",")} - {""}
    if "[" in names:
        found |= {node for node in scene.nodes if _in_hostlist(node, names)}
    return frozenset(found)


def exit_order(scene: Scene) -> tuple[tuple[str, Reading], ...]:
    """Return the nodes whose tasks srun saw end by themselves, in order of the lines; killed ones are left out."""
    return tuple(
        (node, r)
        for r in scene.readings
        if r.signature.id == "srun-task-exit" and r.field("how") not in ("Killed", "Terminated")
        for node in sorted(expand(r.field("nodes"), scene))
    )


def victims(scene: Scene) -> frozenset[str]:
    """Return the nodes that complain about others: they were alive when it happened."""
    return frozenset(r.node for r in scene.readings if r.is_a(Role.CASCADE, Witness.PEER) and r.node)


def peer_votes(scene: Scene) -> Counter[str]:
    """Count, for each node that others name in their errors, how many other nodes do. An address that no line maps to
    a node counts under itself."""
    pairs = set()
    for r in scene.readings:
        peer = r.field("peer") or r.field("peer_address")
        if peer and r.is_a(Role.CASCADE, Witness.PEER):
            pairs.add((r.node or f"rank {r.rank}", scene.ranks.of_peer(peer) or peer))
    return Counter(peer for reporter, peer in pairs if reporter != peer)


def _named(reading: Reading, scene: Scene) -> str:
    nodes = named_nodes(reading, scene)
    return nodes[0] if len(nodes) == 1 else ""


def _by_elimination(scene: Scene) -> Location | None:
    if len(scene.nodes) == 1:
        return Location(scene.nodes[0], "it is the only node")
    complaining = victims(scene)
    silent = [node for node in scene.nodes if node not in complaining]
    if complaining and len(silent) == 1 and scene.ranks.allocation_known:
        return Location(silent[0], "every other node complains about a lost peer")
    first_exit = next((node for node, _ in exit_order(scene) if node not in complaining), "")
    if first_exit:
        return Location(first_exit, "its task was the first to exit by itself")
    votes = [peer for peer, _ in peer_votes(scene).most_common() if peer in silent]
    if len(votes) == 1:
        return Location(votes[0], "the others' errors name it as the lost peer")
    return None


def _in_hostlist(node: str, names: str) -> bool:
    head, _, rest = names.partition("[")
    ranges, _, tail = rest.partition("]")
    if not node.startswith(head) or not node.endswith(tail):
        return False
    number = node[len(head) : len(node) - len(tail)]
    return number.isdigit() and any(_in_range(number, part) for part in ranges.split(","))


def _in_range(number: str, part: str) -> bool:
    low, _, high = part.partition("-")
    high = high or low
    return low.isdigit() and high.isdigit() and len(number) == len(low) and int(low) <= int(number) <= int(high)
