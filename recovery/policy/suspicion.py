"""What other jobs' failures count for in a decision: where this one is located nowhere, it is kept off the suspects.

A suspicion blames nobody: the verdict stays as it is, and says nothing against the node to the next job.
"""

from __future__ import annotations

from recovery.model import Action, Category
from recovery.policy.settings import PolicySettings
from recovery.policy.situation import Situation
from recovery.suspects import MACHINES, Suspect, suspects

SUSPECT_NODE = "suspect_node"
"""The rule that keeps a job off nodes that other jobs point at."""


def suspects_of(situation: Situation, settings: PolicySettings) -> tuple[Suspect, ...]:
    """Return the attempt's nodes that it is to be kept off for other jobs' failures: none where the verdict names a
    culprit, or where the failure lies on no node. More than may be excluded at all are no place."""
    verdict = situation.verdict
    if verdict.suggested is not Action.RESTART or verdict.category not in (*MACHINES, Category.UNKNOWN):
        return ()
    found = suspects(situation.suspicions, settings.suspects, situation.now)
    return found if len(found) <= settings.max_exclusions else ()
