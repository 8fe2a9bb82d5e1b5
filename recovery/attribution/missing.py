"""Start-ups that never became complete: who did not come to the rendezvous."""

from __future__ import annotations

from recovery.attribution.finding import Finding
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Action, Category, Confidence


def incomplete_rendezvous(scene: Scene) -> Finding | None:
    """Return the nodes that never came, when the others waited for them at the start."""
    waiting = scene.where(lambda r: r.cause == "rendezvous_incomplete" and not scene.survived(r))
    if not waiting:
        return None
    absent, cause = _absent(scene, waiting), "node_never_joined"
    if not _count_agrees(absent, waiting, scene):
        absent, cause = _cut_off(scene, waiting), "node_unreachable"
    culprits = absent if _count_agrees(absent, waiting, scene) else ()
    return Finding(
        category=Category.HOST if culprits else Category.UNKNOWN,
        cause=cause if culprits else "rendezvous_incomplete",
        action=Action.RESTART_EXCLUDE if culprits else Action.RESTART,
        summary="the start-up waited for processes that never came",
        evidence=waiting[:6],
        culprits=culprits,
        confidence=Confidence.LIKELY if culprits else Confidence.GUESS,
        unlocated_because="" if culprits else "the lines do not tell which processes never came",
        place="rendezvous",
    )


def _absent(scene: Scene, waiting: tuple[Reading, ...]) -> tuple[str, ...]:
    """The nodes that printed nothing at all by themselves; when all did, those that did not wait."""
    if not scene.ranks.allocation_known:
        return ()
    spoke = {r.node for r in scene.readings if r.node and not r.text.startswith("srun:")}
    silent = tuple(node for node in scene.nodes if node not in spoke)
    waited = {r.node for r in waiting if r.node}
    return silent or tuple(node for node in scene.nodes if node not in waited)


def _cut_off(scene: Scene, waiting: tuple[Reading, ...]) -> tuple[str, ...]:
    """The nodes that did not reach the store, where the store itself says how many it waits for."""
    counted = any(r.field("joined") for r in waiting)
    return scene.in_order({r.node for r in waiting if r.field("store")}) if counted else ()


def _count_agrees(absent: tuple[str, ...], waiting: tuple[Reading, ...], scene: Scene) -> bool:
    """Whether as many ranks are missing as the absent nodes hold, where the lines give a count."""
    if not absent or len(absent) * 2 > len(scene.nodes):
        return False
    counted = next((r for r in reversed(waiting) if r.field("joined")), None)
    if counted is None:
        return True
    joined, expected = int(counted.field("joined")), int(counted.field("expected"))
    return expected > 0 and (expected - joined) * len(scene.nodes) == len(absent) * expected
