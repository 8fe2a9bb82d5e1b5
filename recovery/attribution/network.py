"""Network errors between nodes: who can't be reached, and a vote over who complains about whom."""

from __future__ import annotations

from recovery.attribution.counted import LINK_LOST, grown, only_node, what_hosts_counted
from recovery.attribution.finding import Finding
from recovery.attribution.locate import expand, peer_votes, victims
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import Role, Witness


def unreachable_node(scene: Scene) -> Finding | None:
    """At start NCCL connects queue pairs between nodes: when all that fail have one node in common, it is that node's
    side. Its name is known where a line maps its address, or where it alone does not complain."""
    failed = [r for r in scene.roots(Witness.PROCESS) if r.cause == "ib_connect_failed" and r.field("remote_gid")]
    node_of = {r.field("local_gid"): r.node for r in failed if r.node}
    reporters = {r.node for r in failed if r.node}
    silent = [node for node in scene.nodes if node not in reporters] if scene.ranks.allocation_known else []
    remotes = {r.field("remote_gid") for r in failed}
    if len(remotes - node_of.keys()) == 1 and len(silent) == 1:
        node_of |= dict.fromkeys(remotes - node_of.keys(), silent[0])
    pairs = {frozenset({r.node, _node_at(r.field("remote_gid"), node_of, scene)}) for r in failed}
    culprits = scene.in_order(frozenset.intersection(*pairs)) if len(pairs) > 1 else ()
    if len(culprits) != 1:
        return None
    return Finding(
        category=Category.HARDWARE_NETWORK,
        cause="ib_connect_failed",
        action=Action.RESTART_EXCLUDE,
        summary=f"{len(pairs)} nodes could not connect to the same one",
        evidence=tuple(failed[:6]),
        culprits=culprits,
        place="connect",
    )


def _node_at(gid: str, node_of: dict[str, str], scene: Scene) -> str:
    """The node that printed `gid` as its own, or has the IPv4 address in it, as RoCE's GIDs do; else the GID itself."""
    return node_of.get(gid) or scene.ranks.of_peer(gid.removeprefix("::ffff:")) or gid


def lost_peer(scene: Scene) -> Finding | None:
    """Return the peer that the others lost, when their errors and its own silence agree."""
    complaints = scene.where(lambda r: r.is_a(Role.CASCADE, Witness.PEER) and not scene.survived(r))
    if not complaints:
        return None
    evidence = tuple(r for r in complaints if r.field("peer") or r.field("peer_address"))[:6] or complaints[:6]
    path_errors = any(r.speaks_of(Category.HARDWARE_NETWORK) for r in complaints)
    culprit = named_by_peers(scene)
    if culprit:
        died = _ended_before(culprit, complaints[0], scene)
        return Finding(
            category=Category.HARDWARE_NETWORK
            if path_errors and not died
            else Category.HOST
            if not died
            else Category.UNKNOWN,
            cause="ib_path_failed" if path_errors and not died else "process_lost",
            action=Action.RESTART if died else Action.RESTART_EXCLUDE,
            summary="the other nodes lost their connections to one node, which says nothing itself",
            evidence=evidence,
            culprits=() if died else (culprit,),
            unlocated_because=f"{culprit} is where a process ended first, but no line says why" if died else "",
            place="peer",
        )
    gauges = scene.gauges
    lost = grown(gauges, LINK_LOST)
    if path_errors and (node := only_node(lost)):
        return Finding(
            category=Category.HARDWARE_NETWORK,
            cause="ib_link_down",
            action=Action.RESTART_EXCLUDE,
            summary="connections between nodes broke, and a network port of one node went down",
            evidence=evidence,
            culprits=(node,),
            place="link",
            metric_evidence=tuple(gauge.text for gauge in lost[:4]),
        )
    also, telling = what_hosts_counted(gauges)
    return Finding(
        category=Category.HARDWARE_NETWORK if path_errors else Category.UNKNOWN,
        cause="ib_path_failed" if path_errors else "peer_lost",
        action=Action.RESTART,
        summary=("connections between nodes broke" if path_errors else "a process went away and its peers failed")
        + (f"; {also}" if also else ""),
        evidence=evidence,
        confidence=Confidence.GUESS,
        unlocated_because="the errors name different peers, or addresses that no line maps to a node",
        place="peer",
        metric_evidence=telling,
    )


def named_by_peers(scene: Scene) -> str:
    """The node that at least two others name, clearly more than any other. One that complains itself needs three."""
    votes = peer_votes(scene)
    silent = set(scene.nodes) - victims(scene)
    ranked = votes.most_common(2)
    if not ranked or ranked[0][0] not in scene.nodes:
        return ""
    top, count = ranked[0]
    second = ranked[1][1] if len(ranked) > 1 else 0
    if top in silent:
        return top if (count >= 2 and count >= 2 * second) or (count == 1 and len(silent) == 1) else ""
    return top if count >= 3 and count >= 3 * second else ""


def _ended_before(node: str, complaint: Reading, scene: Scene) -> bool:
    """Whether a process of the node had ended before the first complaint, or in the same moment, as stamps of whole
    seconds often have it: then the errors only say that it was gone."""
    exits = [
        r for r in scene.readings if r.signature.id == "srun-task-exit" and node in expand(r.field("nodes"), scene)
    ]
    exits += [r for r in scene.readings if r.node == node and r.signature.id == "elastic-child-failed"]
    return any(not complaint.is_before(r) for r in exits)
