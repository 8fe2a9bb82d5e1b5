"""When Slurm states why it ended the attempt, that is the answer, unless the node it gave up had a fault of its own."""

from __future__ import annotations

from dataclasses import replace

from recovery.attribution.finding import Finding
from recovery.attribution.host_evidence import host_fault
from recovery.attribution.locate import named_nodes
from recovery.attribution.network import named_by_peers
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.stall import is_overdue
from recovery.attribution.waiting import waited_in_vain
from recovery.attribution.words import in_words
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import REPORTER, Role, Witness

_OBEYING = frozenset({"told_to_stop", "step_aborted"})
"""What processes say when they do as they are told: no failure of their own."""

_SENTENCES = {
    "node_failure": "Slurm declared a node failed",
    "node_rebooted": "a node rebooted under the job",
    "time_limit": "the job reached its time limit",
    "preemption": "the job was preempted for another one",
    "user_cancelled": "the job was cancelled on request",
    "prolog_failure": "the prolog failed before the job's own code ran; Slurm drains the node",
    "task_launch_failed": "a node did not start its task",
}


def stated_reason(scene: Scene) -> Finding | None:
    """Return what slurmctld, slurmstepd or srun state as the reason: from the lines first, from the state second."""
    lines = list(scene.roots(Witness.SCHEDULER))
    finding = _from_lines(lines, scene) if lines else _from_state(scene)
    if finding is None:
        return None
    if finding.cause == "time_limit" and (waited_in_vain(scene) or is_overdue(scene)):
        return None
    if finding.cause in ("node_failure", "node_rebooted"):
        return _node_fault(finding, scene) or finding
    return finding


def cancelled_without_a_reason(scene: Scene) -> Finding | None:
    """The whole job was told to end, nobody says why, and nothing had failed before: somebody's scancel or requeue."""
    lines = scene.where(lambda r: r.signature.id in ("slurm-job-cancelled", "slurm-cancelled-requeue"))
    if not lines or any(
        r.is_before(lines[0]) for r in scene.readings if r.is_a(Role.CASCADE) and r.cause not in _OBEYING
    ):
        return None
    if lines[0].cause == "job_requeued":
        return Finding(
            category=Category.SCHEDULER,
            cause="job_requeued",
            action=Action.RESTART,
            summary="the job was requeued, and nothing had failed before",
            evidence=lines[:2],
        )
    return Finding(
        category=Category.SCHEDULER,
        cause="user_cancelled",
        action=Action.STOP,
        summary="the job was cancelled, and nothing had failed before",
        evidence=lines[:2],
    )


def requeued_on_request(scene: Scene) -> Finding | None:
    """Slurm ended a running attempt to requeue it: what its processes say about each other is how they died of that."""
    lines = scene.where(lambda r: r.signature.id == "slurm-cancelled-requeue")
    if scene.facts.state != "REQUEUED" or not lines:
        return None
    return Finding(
        category=Category.SCHEDULER,
        cause="job_requeued",
        action=Action.NONE,
        summary="the job was requeued on request while it ran",
        evidence=lines[:2],
        confidence=Confidence.ESTABLISHED,
        place="slurm requeue",
    )


def _node_fault(finding: Finding, scene: Scene) -> Finding | None:
    """The node's own words on why it failed, when it had any."""
    fault = host_fault(scene)
    if fault is None or not fault.culprits or (finding.culprits and fault.culprits != finding.culprits):
        return None
    return replace(fault, evidence=(*fault.evidence, *finding.evidence), ruled_out=finding.ruled_out)


def _from_lines(lines: list[Reading], scene: Scene) -> Finding | None:
    naming = [r for r in lines if named_nodes(r, scene) or (r.signature.culprit == REPORTER and r.node)]
    first = (naming or lines)[0]
    signature = first.signature
    culprits = named_nodes(first, scene) or ((first.node,) if first in naming else ())
    given_up = () if culprits else _given_up(signature.cause, scene)
    evidence = tuple(r for r in lines if r.cause == signature.cause)
    return Finding(
        category=signature.category,
        cause=signature.cause,
        action=Action.RESTART_EXCLUDE if given_up else signature.action,
        summary=_SENTENCES.get(signature.cause, in_words(signature.cause)),
        evidence=evidence,
        culprits=culprits or given_up,
        confidence=Confidence.ESTABLISHED,
        unlocated_because=_unlocated(signature.category, culprits or given_up),
        ruled_out=_where_it_ran(scene, culprits or given_up),
        place=signature.id,
    )


def _given_up(cause: str, scene: Scene) -> tuple[str, ...]:
    """The node that slurmctld itself took out, or that all peers lost, where a line tells of a failed node without its
    name."""
    if cause != "node_failure":
        return ()
    failed_node = scene.ranks.node(scene.facts.failed_node) or named_by_peers(scene)
    return (failed_node,) if failed_node else ()


def _from_state(scene: Scene) -> Finding | None:
    facts = scene.facts
    failed_node = scene.ranks.node(facts.failed_node)
    if facts.state == "NODE_FAIL":
        culprits = (failed_node,) if failed_node else ()
        return _stated(
            Category.HOST,
            "node_failure",
            Action.RESTART_EXCLUDE if culprits else Action.RESTART,
            culprits,
            _unlocated(Category.HOST, culprits),
        )
    if facts.state == "CANCELLED":
        return _stated(Category.SCHEDULER, "user_cancelled", Action.STOP)
    if facts.state == "PREEMPTED":
        return _stated(Category.SCHEDULER, "preemption", Action.RESTART)
    if facts.state in ("TIMEOUT", "DEADLINE"):
        return _stated(Category.SCHEDULER, "time_limit", Action.RESTART)
    if facts.state == "BOOT_FAIL":
        return _stated(Category.HOST, "node_failure", Action.RESTART, (failed_node,) if failed_node else ())
    return None


def _stated(
    category: Category, cause: str, action: Action, culprits: tuple[str, ...] = (), unlocated: str = ""
) -> Finding:
    return Finding(
        category=category,
        cause=cause,
        action=action,
        summary=_SENTENCES[cause],
        culprits=culprits,
        confidence=Confidence.ESTABLISHED,
        unlocated_because=unlocated,
        place="slurm state",
    )


def _unlocated(category: Category, culprits: tuple[str, ...]) -> str:
    if category is not Category.HOST or culprits:
        return ""
    return "Slurm's messages do not name the failed node; the node in a CANCELLED line is where the step ran"


def _where_it_ran(scene: Scene, culprits: tuple[str, ...]) -> tuple[str, ...]:
    wheres = {scene.ranks.node(r.field("where")) for r in scene.readings if r.field("where")} - {"", *culprits}
    return tuple(
        f"{node}: the CANCELLED message names it only as the place where the step ran" for node in sorted(wheres)
    )
