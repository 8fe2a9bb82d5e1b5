"""Nodes that a job is kept off without evidence of this attempt's own: where its failure is located nowhere, those that
other jobs failed by lately, and the one on which each of the job's own last attempts failed.

Neither blames anybody: the verdict stays as it is, and says nothing against the node to the next job.
"""

from __future__ import annotations

from recovery.model import Action, Category, NodeName
from recovery.policy.settings import PolicySettings
from recovery.policy.situation import Situation
from recovery.suspects import MACHINES, Suspect, suspects

SUSPECT_NODE = "suspect_node"
"""The rule that keeps a job off nodes that other jobs point at."""
SAME_NODE_AGAIN = "same_node_again"
"""The rule that keeps a job off the node that its own failures have in common."""
LIES_ON_SOME_NODE = (*MACHINES, Category.UNKNOWN)


def suspects_of(situation: Situation, settings: PolicySettings) -> tuple[Suspect, ...]:
    """Return the attempt's nodes that it is to be kept off for other jobs' failures: none where the verdict names a
    culprit, or where the failure lies on no node. More than may be excluded at all are no place."""
    if not _is_unlocated(situation):
        return ()
    found = suspects(situation.suspicions, settings.suspects, situation.now)
    return found if len(found) <= settings.max_exclusions else ()


def same_node_again(situation: Situation) -> tuple[NodeName, ...]:
    """Return the one node that this attempt and those right before it, which were located nowhere either, had in
    common; empty: there is no such node, or there are several."""
    if not _is_unlocated(situation):
        return ()
    common, before = set(situation.nodes), 0
    for past in reversed(situation.past):
        if past.action is not Action.RESTART or past.category not in LIES_ON_SOME_NODE or not past.nodes:
            break
        common, before = common & set(past.nodes), before + 1
    return tuple(common) if before and len(common) == 1 else ()


def _is_unlocated(situation: Situation) -> bool:
    verdict = situation.verdict
    return verdict.suggested is Action.RESTART and verdict.category in LIES_ON_SOME_NODE
