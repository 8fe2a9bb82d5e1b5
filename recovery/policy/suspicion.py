"""Nodes that a job is kept off without evidence of this attempt's own: where its failure is located nowhere, those that
other jobs failed by lately, and the one on which each of the job's own last attempts failed.

Neither blames anybody: the verdict stays as it is, and says nothing against the node to the next job.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from recovery.model import Action, Category, NodeName
from recovery.policy.settings import PolicySettings
from recovery.policy.situation import Situation
from recovery.suspects import MACHINES, Suspect, suspects


class Suspected(NamedTuple):
    """Nodes to keep off without evidence of this attempt's own."""

    rule: str = ""
    why: Mapping[NodeName, str] = MappingProxyType({})
    """By node, in words for people; empty: there are none."""


SUSPECT_NODE = "suspect_node"
"""The rule that keeps a job off nodes that other jobs point at."""
SAME_NODE_AGAIN = "same_node_again"
"""The rule that keeps a job off the node that its own failures have in common."""
LIES_ON_SOME_NODE = (*MACHINES, Category.UNKNOWN)


def suspected(situation: Situation, settings: PolicySettings) -> Suspected:
    """Return the attempt's nodes that it is to be kept off: none where the verdict names a culprit, or where the
    failure lies on no node."""
    verdict = situation.verdict
    if verdict.suggested is not Action.RESTART or verdict.category not in LIES_ON_SOME_NODE:
        return Suspected()
    again = {node: f"{node} was in each attempt that failed so" for node in _same_node_again(situation)}
    others = {suspect.node: suspect.says for suspect in _suspects(situation, settings)}
    return Suspected(SUSPECT_NODE if others else SAME_NODE_AGAIN, {**again, **others})


def _suspects(situation: Situation, settings: PolicySettings) -> tuple[Suspect, ...]:
    """Those that other jobs point at. More than may be excluded at all are no place."""
    found = suspects(situation.suspicions, settings.suspects, situation.now)
    return found if len(found) <= settings.max_exclusions else ()


def _same_node_again(situation: Situation) -> tuple[NodeName, ...]:
    """The one node that this attempt and those right before it, which were located nowhere either, had in common;
    empty: there is no such node, or there are several."""
    common, before = set(situation.nodes), 0
    for past in reversed(situation.past):
        if past.action is not Action.RESTART or past.category not in LIES_ON_SOME_NODE or not past.nodes:
            break
        common, before = common & set(past.nodes), before + 1
    return tuple(common) if before and len(common) == 1 else ()
