"""Wrong numbers: a GPU that computes wrong results, and losses that are no numbers any more."""

from __future__ import annotations

import math

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.detection.markers import IterationFinished
from recovery.model import Action, Category, Confidence, SymptomKind

_NAN_ITERATIONS = re2.compile(r"number of nan iterations: +([1-9]\d*)")
_NOT_A_NUMBER = re2.compile(r"(?i)(?:grad_norm|loss)['\"]?\s*[:=]\s*'?(?:nan|[-+]?inf)\b")
_SKIPPED = re2.compile(r"number of skipped iterations: +([1-9]\d*)")
_SUSPICIOUS_NODE = re2.compile(r"\bnode=([\w.-]+) device=(\d+) ")
_LASTING = 3
"""So many iterations in a row, up to the last one, make a NaN that stays."""


def wrong_results(scene: Scene) -> Finding | None:
    """Megatron-LM's rerun on another GPU disagreed: the suspect is the node of the *first* run, not the verifier."""
    everything = [r for attempt in (*scene.earlier, scene.readings) for r in attempt]
    verdicts = [r for r in everything if r.cause == "silent_data_corruption"]
    if not verdicts:
        return None
    suspects = [r for r in everything if r.cause == "unexpected_result_reproducible"]
    recorded = [r for r in everything if "FIRST_RERUN_REPRODUCIBLE" in r.text]
    nodes = [scene.ranks.node(r.field("node")) or r.node for r in suspects]
    nodes += [scene.ranks.node(found.group(1)) for r in recorded if (found := _SUSPICIOUS_NODE.search(r.text))]
    culprit = next((node for node in reversed(nodes) if node), "")
    return Finding(
        category=Category.HARDWARE_GPU,
        cause="silent_data_corruption",
        action=Action.RESTART_EXCLUDE if culprit else Action.RESTART,
        summary="a GPU repeats a result that another GPU does not get: it computes wrongly",
        evidence=(*suspects[-2:], *verdicts[:2], *recorded[-1:]),
        culprits=(culprit,) if culprit else (),
        confidence=Confidence.ESTABLISHED,
        unlocated_because="" if culprit else "no line names the node of the first run",
        ruled_out=tuple(f"{r.node}: it only verified the result" for r in verdicts[:1] if r.node and r.node != culprit),
        symptom=SymptomKind.CRASH,
        place="rerun",
    )


def nan_before_reduction(scene: Scene) -> Finding | None:
    """NaN in the gradients that a rank had by itself, before any exchange."""
    lines = [r for r in scene.roots() if r.cause == "nan_in_gradients"]
    if not lines:
        return None
    ranks = {r.field("rank") or r.field("loss_rank") or str(r.rank) for r in lines}
    one = len(ranks) == 1
    return Finding(
        category=Category.NUMERICAL,
        cause="nan_on_one_rank" if one else "divergence",
        action=Action.RESTART if one else Action.STOP,
        summary="one rank's gradients were NaN before any exchange: its data or its GPU"
        if one
        else "gradients are NaN on many ranks",
        evidence=tuple(lines[:6]),
        unlocated_because="a single NaN does not tell bad data from a bad GPU" if one else "",
        place="gradients",
    )


def silent_nan(scene: Scene) -> Finding | None:
    """A loss that became NaN and stays so: the weights are lost while the job runs on, or before it ended."""
    iterations = [r for r in scene.iterations if not (isinstance(r.marker, IterationFinished) and r.marker.from_bar)]
    tail: list[Reading] = []
    for reading in reversed(iterations):
        if not _lost(reading):
            break
        tail.append(reading)
    if len(tail) < _LASTING or (len(tail) == len(iterations) and _still_scaling(tail)):
        return None
    return Finding(
        category=Category.NUMERICAL,
        cause="silent_nan",
        action=Action.STOP,
        summary=f"loss or gradients have been NaN for the last {len(tail)} reported iterations",
        evidence=(*reversed(tail[-3:]), tail[0]),
        confidence=Confidence.ESTABLISHED,
        place="loss",
    )


def _lost(reading: Reading) -> bool:
    marker = reading.marker
    if not isinstance(marker, IterationFinished):
        return False
    if marker.loss is not None and not math.isfinite(marker.loss):
        return True
    text = reading.line.text
    if _NAN_ITERATIONS.search(text) or _NOT_A_NUMBER.search(text):
        return True
    # Megatron-LM leaves the loss out when it is NaN, and also while the loss scale is still being found.
    return "loss scale:" in text and "lm loss:" not in text and not _SKIPPED.search(text)


def _still_scaling(tail: list[Reading]) -> bool:
    return any(_SKIPPED.search(r.line.text) for r in tail)
