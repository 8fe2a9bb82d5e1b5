"""Ranks that waited in vain: who never came to the collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import re2

from recovery.attribution.busy import at_work
from recovery.attribution.counted import LINK_LOST, grown, only_node
from recovery.attribution.finding import Finding
from recovery.attribution.gpu_activity import idle_node
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.spread import is_widespread
from recovery.detection.markers import CheckpointBegun, CheckpointFinished, IterationFinished
from recovery.model import Action, Category, Confidence, SymptomKind
from recovery.signatures.catalogue import Role, Witness

_GROUP = re2.compile(r"\[PG (?:ID )?(\w+)(?: PG GUID (\w+))?")
_UNEVEN = frozenset({"SEND", "RECV", "COALESCED", "GATHER", "SCATTER", "ALLTOALL", "ALLTOALL_BASE"})
_VICTIM_CAUSES = frozenset({"collective_timeout", "heartbeat_missing"})


@dataclass(frozen=True)
class _Wait:
    """One rank's timeout: in which collective it waited."""

    reading: Reading
    rank: int
    seq: int
    call: tuple[str, str, str]


def waited_in_vain(scene: Scene) -> Finding | None:
    """Compare what the ranks say of the collective they timed out in."""
    complaints = [r for r in scene.readings if r.cause in _VICTIM_CAUSES and not scene.survived(r)]
    if not complaints:
        return None
    finding = (
        _mismatch(complaints)
        or _behind(scene, complaints)
        or _stalled_storage(scene, complaints)
        or _idle_node(scene, complaints)
        or _stuck_host(scene, complaints)
        or _lost_link(scene, complaints)
        or _silent_node(scene, complaints)
        or _stalled_checkpoint(scene, complaints)
        or _nobody_singled_out(complaints)
    )
    return (at_work(finding, complaints[0], scene) if finding.cause == "rank_never_arrived" else None) or finding


def _mismatch(complaints: list[Reading]) -> Finding | None:
    """The same sequence number with another operation or size: the program's ranks took different paths."""
    calls: dict[tuple[str, int], dict[tuple[str, str, str], list[_Wait]]] = defaultdict(lambda: defaultdict(list))
    group_of = {rank: group for r in complaints if (rank := _rank(r)) is not None and (group := _group(r))}
    for wait in _waits(complaints):
        if wait.call[0] and wait.call[0] not in _UNEVEN:
            calls[(group_of.get(wait.rank, ""), wait.seq)][wait.call].append(wait)
    unnamed = {seq for group, seq in calls if not group}
    for (group, _), by_call in calls.items():
        if len(by_call) > 1 and (group or len(unnamed) == 1):
            evidence = tuple(waits[0].reading for waits in by_call.values())
            return Finding(
                category=Category.USER_CODE,
                cause="collective_mismatch",
                action=Action.STOP,
                summary="ranks called different collectives at the same position: the program's paths differ",
                evidence=evidence,
                confidence=Confidence.ESTABLISHED,
                symptom=SymptomKind.HANG,
                place="+".join(sorted(call[0] for call in by_call)),
            )
    return None


def _behind(scene: Scene, complaints: list[Reading]) -> Finding | None:
    """A rank that never enqueued what the others waited for."""
    waited: dict[str, int] = {}
    enqueued: dict[tuple[str, int], tuple[int, Reading]] = {}
    for r in complaints:
        rank = _rank(r)
        if rank is None:
            continue
        group = _group(r)
        if r.field("seq"):
            waited[group] = max(waited.get(group, 0), int(r.field("seq")))
        if r.field("enqueued"):
            enqueued[(group, rank)] = (int(r.field("enqueued")), r)
    late = [
        (rank, reading)
        for (group, rank), (last, reading) in enqueued.items()
        if group in waited and 0 <= last < waited[group] and (group, rank) in enqueued
    ]
    if not late or len(late) * 2 > len(enqueued):
        return None
    nodes = scene.in_order({scene.ranks.of_rank(rank) or reading.node for rank, reading in late})
    if len(nodes) > 1 and is_widespread(nodes, scene):
        return None
    return Finding(
        category=Category.HOST,
        cause="rank_never_arrived",
        action=Action.RESTART_EXCLUDE if nodes else Action.RESTART,
        summary=f"rank {', '.join(str(rank) for rank, _ in late[:4])} never enqueued what the others waited for",
        evidence=(*(reading for _, reading in late[:4]), *complaints[:2]),
        culprits=nodes,
        confidence=Confidence.LIKELY,
        unlocated_because="" if nodes else "no line tells which node that rank is on",
        symptom=SymptomKind.HANG,
        place="collective",
    )


def _stalled_storage(scene: Scene, complaints: list[Reading]) -> Finding | None:
    """Clients of a file system that wait for their server while ranks wait for each other."""
    waiting = scene.where(lambda r: r.is_a(Role.CONFIRMATION) and r.speaks_of(Category.STORAGE))
    if not waiting:
        return None
    return storage_stall(scene, waiting, complaints[:2])


def storage_stall(scene: Scene, waiting: tuple[Reading, ...], also: Iterable[Reading] = ()) -> Finding:
    """Tell one client's trouble from the server's."""
    nodes = scene.in_order({r.node for r in waiting if r.node})
    signature = waiting[0].signature
    alone = len(nodes) == 1 and len(scene.nodes) > 2
    return Finding(
        category=Category.STORAGE,
        cause=signature.cause,
        action=Action.RESTART_EXCLUDE if alone else Action.WAIT,
        summary="one client lost its file system" if alone else "the shared file system does not answer",
        evidence=(*waiting[:6], *also),
        culprits=nodes if alone else (),
        confidence=Confidence.LIKELY,
        unlocated_because="" if alone else "several clients wait for the same server",
        place=signature.id,
    )


def _idle_node(scene: Scene, complaints: list[Reading]) -> Finding | None:
    """One node's GPUs idle while all others spin in the collective."""
    node, gauges = idle_node(scene.gauges)
    if not node:
        return None
    finding = _never_came((node,), complaints, "its GPUs idle while the others' spin")
    return replace(finding, metric_evidence=gauges[:4])


def _lost_link(scene: Scene, complaints: list[Reading]) -> Finding | None:
    """One node whose port went down while all waited."""
    lost = grown(scene.gauges, LINK_LOST)
    node = only_node(lost)
    if not node:
        return None
    return Finding(
        category=Category.HARDWARE_NETWORK,
        cause="ib_link_down",
        action=Action.RESTART_EXCLUDE,
        summary="a network port of one node went down while ranks waited in a collective",
        evidence=tuple(complaints[:6]),
        culprits=(node,),
        symptom=SymptomKind.HANG,
        place="link",
        metric_evidence=tuple(gauge.text for gauge in lost[:4]),
    )


def _stuck_host(scene: Scene, complaints: list[Reading]) -> Finding | None:
    """One node whose kernel or processes say that something is stuck there."""
    stuck = scene.where(
        lambda r: (
            r.is_a(Role.CONFIRMATION, Witness.HOST, Witness.PROCESS) and r.cause in ("hung_task", "watchdog_stuck_gil")
        )
    )
    nodes = scene.in_order({r.node for r in stuck if r.node})
    if len(nodes) != 1:
        return None
    signature = stuck[0].signature
    return Finding(
        category=signature.category,
        cause=signature.cause,
        action=signature.action,
        summary="a task on one node is stuck in the kernel while the others wait",
        evidence=(*stuck[:4], *complaints[:2]),
        culprits=nodes,
        symptom=SymptomKind.HANG,
        place="hung task",
    )


def _silent_node(scene: Scene, complaints: list[Reading]) -> Finding | None:
    """All nodes but one complain: the one that does not never came."""
    if not scene.ranks.allocation_known or len(scene.nodes) < 2:
        return None
    complaining = {r.node for r in complaints if r.node}
    silent = [node for node in scene.nodes if node not in complaining]
    if len(silent) != 1 or not complaining:
        return _silent_rank(scene, complaints)
    return _never_came(
        tuple(silent), complaints, f"{len(complaining)} of {len(scene.nodes)} nodes timed out, this one did not"
    )


def _silent_rank(scene: Scene, complaints: list[Reading]) -> Finding | None:
    per_node = scene.ranks.ranks_per_node
    ranks = {rank for r in complaints if (rank := _rank(r)) is not None}
    total = per_node * len(scene.nodes)
    missing = [rank for rank in range(min(total, 100_000)) if rank not in ranks]
    if not per_node or not ranks or not missing or len(missing) > max(1, per_node):
        return None
    nodes = scene.in_order({scene.ranks.of_rank(rank) for rank in missing} - {""})
    if len(nodes) != 1:
        return None
    return _never_came(nodes, complaints, f"every rank timed out but {', '.join(map(str, missing[:8]))}")


def _never_came(nodes: tuple[str, ...], complaints: list[Reading], why: str) -> Finding:
    return Finding(
        category=Category.HOST,
        cause="rank_never_arrived",
        action=Action.RESTART_EXCLUDE,
        summary=f"the others waited in a collective: {why}",
        evidence=tuple(complaints[:6]),
        culprits=nodes,
        confidence=Confidence.LIKELY,
        symptom=SymptomKind.HANG,
        place="collective",
    )


def _stalled_checkpoint(scene: Scene, complaints: list[Reading]) -> Finding | None:
    last = next(
        (r for r in reversed(scene.readings) if isinstance(r.marker, CheckpointBegun | CheckpointFinished)), None
    )
    if last is None or not isinstance(last.marker, CheckpointBegun):
        return None
    if _went_on_after(last.marker, last, scene):
        return None
    return Finding(
        category=Category.STORAGE,
        cause="checkpoint_stalled",
        action=Action.RESTART,
        summary="a checkpoint write began and never finished",
        evidence=(last, *complaints[:3]),
        unlocated_because="no client of the file system reports trouble of its own",
        symptom=SymptomKind.HANG,
        place="checkpoint",
    )


def _went_on_after(begun: CheckpointBegun, reading: Reading, scene: Scene) -> bool:
    """Whether an iteration beyond the checkpoint's has finished. Lines of one moment come in any order, so the number
    decides where there is one."""
    last = scene.iterations[-1] if scene.iterations else None
    if last is None or not isinstance(last.marker, IterationFinished):
        return False
    if begun.iteration is not None and last.marker.n is not None:
        return last.marker.n > begun.iteration
    return last.order > reading.order


def _nobody_singled_out(complaints: list[Reading]) -> Finding:
    return Finding(
        category=Category.UNKNOWN,
        cause="collective_timeout",
        action=Action.RESTART,
        summary="ranks timed out in a collective",
        evidence=tuple(complaints[:6]),
        confidence=Confidence.GUESS,
        unlocated_because="the timeouts alone do not tell which rank never came: those who print them waited",
        symptom=SymptomKind.HANG,
        place="collective",
    )


def _waits(complaints: Iterable[Reading]) -> list[_Wait]:
    return [
        _Wait(r, rank, int(r.field("seq")), (r.field("op"), r.field("numel_in"), r.field("numel_out")))
        for r in complaints
        if r.field("seq") and r.field("op") and (rank := _rank(r)) is not None
    ]


def _rank(reading: Reading) -> int | None:
    """The global rank: the prefix has it; inside a message stands the rank within its process group."""
    if reading.rank is not None:
        return reading.rank
    inside = reading.field("group_rank")
    return int(inside) if inside else None


def _group(reading: Reading) -> str:
    found = _GROUP.search(reading.line.text[:500])
    return (found.group(2) or found.group(1)) if found else ""
