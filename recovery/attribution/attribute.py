"""From an incident to a verdict: the rules in the order in which they are asked. The first that finds something counts.

A job that still runs and shows no failure is asked about wrong numbers, stalls and slowness only. For a failed one,
statements of the scheduler come before what machines report about themselves, that before what processes report about
themselves, and all of it before what processes say about each other.
"""

from __future__ import annotations

from collections.abc import Callable

from recovery.attribution.endings import failed, symptom
from recovery.attribution.exits import bare_exit, native_crash
from recovery.attribution.finding import Finding
from recovery.attribution.gauge_evidence import xid_in_gauges
from recovery.attribution.history import bad_data, same_gpu_again
from recovery.attribution.host_evidence import host_fault
from recovery.attribution.incident import Incident
from recovery.attribution.missing import incomplete_rendezvous
from recovery.attribution.network import lost_peer, unreachable_node
from recovery.attribution.numerics import nan_before_reduction, silent_nan, wrong_results
from recovery.attribution.process_faults import process_fault
from recovery.attribution.scene import Scene, read_scene
from recovery.attribution.scheduler_reasons import cancelled_without_a_reason, requeued_on_request, stated_reason
from recovery.attribution.slowness import straggler
from recovery.attribution.special import failed_node_check, lost_task, odd_network, stopped_beating, version_mismatch
from recovery.attribution.stall import stalled
from recovery.attribution.verdicts import healthy_verdict, verdict_of
from recovery.attribution.waiting import waited_in_vain
from recovery.model import SymptomKind, Verdict
from recovery.signatures.catalogue import Catalogue, packaged_catalogue

Rule = Callable[[Scene], Finding | None]

RULES_FOR_A_FAILURE: tuple[Rule, ...] = (
    stated_reason,
    wrong_results,
    same_gpu_again,
    version_mismatch,
    failed_node_check,
    host_fault,
    xid_in_gauges,
    requeued_on_request,
    nan_before_reduction,
    silent_nan,
    unreachable_node,
    process_fault,
    lost_task,
    stopped_beating,
    odd_network,
    waited_in_vain,
    stalled,
    cancelled_without_a_reason,
    incomplete_rendezvous,
    native_crash,
    lost_peer,
    bare_exit,
)

RULES_FOR_A_RUNNING_JOB: tuple[Rule, ...] = (silent_nan, stalled, straggler)


def attribute(incident: Incident, catalogue: Catalogue | None = None) -> Verdict:
    """Say what happened to an attempt, why, whose fault it is and what that calls for. The same incident always gives
    the same verdict."""
    scene = read_scene(incident, catalogue or packaged_catalogue())
    if not failed(scene):
        finding = _first(RULES_FOR_A_RUNNING_JOB, scene)
        return verdict_of(finding, finding.symptom or SymptomKind.NONE, scene) if finding else healthy_verdict(scene)
    finding = _first(RULES_FOR_A_FAILURE, scene)
    if finding is None:
        raise AssertionError("the last rule always finds something")
    finding = bad_data(finding, scene)
    return verdict_of(finding, finding.symptom or symptom(scene), scene)


def _first(rules: tuple[Rule, ...], scene: Scene) -> Finding | None:
    return next((finding for rule in rules if (finding := rule(scene))), None)
