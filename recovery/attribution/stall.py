"""A job that stopped without a word."""

from __future__ import annotations

import itertools
import statistics
from datetime import timedelta

from recovery.attribution.finding import Finding
from recovery.attribution.gpu_activity import Doing, all_alike, idle_node
from recovery.attribution.scene import Scene
from recovery.attribution.waiting import storage_stall
from recovery.detection.markers import CheckpointBegun, CheckpointFinished
from recovery.model import Action, Category, Confidence, SymptomKind
from recovery.signatures.catalogue import Role

_FLOOR = timedelta(minutes=15)
_INTERVALS = 10
_ALIKE = {
    Doing.UNCLEAR: "no rank complains and no gauge sets a node apart",
    Doing.SPINS: "all GPUs spin in a collective without any work, and no gauge sets a node apart",
    Doing.IDLES: "all GPUs idle: the processes wait for something outside of them, such as data or storage",
    Doing.WORKS: "all GPUs still compute: it may be a long step that prints nothing",
}


def stalled(scene: Scene) -> Finding | None:
    """No progress for much longer than iterations ever took, and nothing that says why."""
    if scene.detected is not SymptomKind.HANG and not is_overdue(scene):
        return None
    storage = scene.where(lambda r: r.is_a(Role.CONFIRMATION) and r.speaks_of(Category.STORAGE))
    if storage:
        return storage_stall(scene, storage)
    gauges = scene.gauges
    node, telling = idle_node(gauges)
    doing, alike = all_alike(gauges)
    return Finding(
        category=Category.STORAGE
        if _in_checkpoint(scene) and not node
        else Category.HOST
        if node
        else Category.UNKNOWN,
        cause="stall_one_node" if node else "checkpoint_stalled" if _in_checkpoint(scene) else "stall",
        action=Action.RESTART_EXCLUDE if node else Action.RESTART,
        summary="all other nodes' GPUs spin in a collective while one node's are idle: it never entered"
        if node
        else "no iteration has finished for far longer than iterations take",
        evidence=scene.iterations[-2:],
        culprits=(node,) if node else (),
        confidence=Confidence.LIKELY if node else Confidence.GUESS,
        unlocated_because="" if node else _ALIKE[doing],
        symptom=SymptomKind.HANG,
        place="stall",
        metric_evidence=(telling or alike)[:4],
    )


def is_overdue(scene: Scene) -> bool:
    """Whether nothing has been finished for far longer than iterations take, up to the time of asking."""
    times = [r.at for r in scene.iterations if r.at]
    if len(times) < 3 or scene.last_at is None or scene.completed:
        return False
    usual = timedelta(seconds=statistics.median((b - a).total_seconds() for a, b in itertools.pairwise(times)))
    others = [r.at for r in scene.readings if r.at and r.marker is not None]
    silence = scene.last_at - max(others) if scene.silence is None else scene.silence
    return silence > max(_FLOOR, _INTERVALS * usual)


def _in_checkpoint(scene: Scene) -> bool:
    last = next((r for r in reversed(scene.readings) if r.marker is not None), None)
    return (
        last is not None
        and isinstance(last.marker, CheckpointBegun)
        and not isinstance(last.marker, CheckpointFinished)
    )
