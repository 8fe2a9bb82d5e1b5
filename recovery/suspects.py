"""Nodes under suspicion across jobs: what failed jobs say against their nodes, remembered for a day.

A job's own workflow knows its own attempts and nothing else. That a node brought down two other jobs this morning is
known here, kept by the cluster's workflow. Each job counts once, however often it failed; the score sums up what all of
them say, and fades.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from pydantic import ConfigDict, Field

from recovery.model import Category, Confidence, JobId, NodeName, Value, Verdict

KEPT_SUSPICIONS = 500
FORGET_AFTER = timedelta(hours=24)
MAX_NODES = 16
"""Of a failure that blames more nodes, or may lie on any of more, nothing is kept: that is no place."""
MACHINES = (Category.HARDWARE_GPU, Category.HARDWARE_NETWORK, Category.HOST)
"""Failures that lie on some node, whether or not it could be told on which."""
SURE, LIKELY = 1.0, 0.5


class SuspectSettings(Value):
    """When a node counts as suspect."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    score: float | None = Field(default=1.5, gt=0)
    """A job that surely failed by the node counts as 1, one that likely did as 0.5; None: no node is ever suspect."""
    half_life_hours: float = Field(default=6.0, gt=0)
    """After so long a failure counts half."""


class Suspicion(Value):
    """What one failed job says against one node."""

    node: NodeName
    job: str = Field(max_length=100)
    """See `program_of`."""
    weight: float = Field(gt=0, le=1)
    at: datetime


class Suspect(Value):
    """A node that several jobs point at."""

    node: NodeName
    score: float
    jobs: tuple[str, ...]
    """Those that failed by it, the latest last."""

    @property
    def says(self) -> str:
        """Why it is suspect, in words."""
        named = ", ".join(job.rpartition("/")[2] for job in self.jobs[-4:])
        return f"{self.node} is under suspicion by jobs {named}"


class SuspectLedger(Value):
    """All that the failed jobs of a cluster said against nodes lately."""

    suspicions: tuple[Suspicion, ...] = ()

    def with_failure(self, job: str, against: Mapping[NodeName, float], now: datetime) -> SuspectLedger:
        """Return the ledger with what `job` says now; to tell it again changes nothing but its time."""
        kept = [each for each in self.fresh(now) if each.job != job or each.node not in against]
        told = [Suspicion(node=node, job=job, weight=weight, at=now) for node, weight in against.items()]
        return SuspectLedger(suspicions=(*kept, *told)[-KEPT_SUSPICIONS:])

    def without(self, nodes: Collection[NodeName]) -> SuspectLedger:
        """Return the ledger once `nodes` are repaired: what was said against them is forgotten."""
        return SuspectLedger(suspicions=tuple(each for each in self.suspicions if each.node not in nodes))

    def fresh(self, now: datetime) -> tuple[Suspicion, ...]:
        """Return what is not forgotten, the latest last."""
        return tuple(each for each in self.suspicions if now - each.at < FORGET_AFTER)


def program_of(job: str, array_id: JobId) -> str:
    """Return who speaks when `job`, as cluster and job id, fails: the tasks of an array are one program."""
    return f"{job.partition('/')[0]}/{array_id}" if array_id else job


def weights_against(verdict: Verdict, nodes: Collection[NodeName]) -> dict[NodeName, float]:
    """Return how much a failed attempt on `nodes` says against each node. What the program itself did says nothing, and
    neither does a suspicion: it would feed itself."""
    if verdict.names_culprits:
        weight = SURE if verdict.confidence is Confidence.ESTABLISHED else LIKELY
        return dict.fromkeys(verdict.culprits, weight) if len(verdict.culprits) <= MAX_NODES else {}
    if verdict.category not in MACHINES or not 0 < len(nodes) <= MAX_NODES:
        return {}
    return dict.fromkeys(nodes, min(LIKELY, SURE / len(nodes)))


def suspects(suspicions: Iterable[Suspicion], settings: SuspectSettings, now: datetime) -> tuple[Suspect, ...]:
    """Return the nodes that the suspicions are enough against, the most suspect first."""
    if settings.score is None:
        return ()
    by_node: dict[NodeName, list[Suspicion]] = {}
    for each in sorted(suspicions, key=lambda suspicion: suspicion.at):
        by_node.setdefault(each.node, []).append(each)
    half_life = timedelta(hours=settings.half_life_hours)
    scored = [
        Suspect(
            node=node,
            score=sum(each.weight * 0.5 ** (max(timedelta(), now - each.at) / half_life) for each in against),
            jobs=tuple(each.job for each in against),
        )
        for node, against in by_node.items()
    ]
    enough = [suspect for suspect in scored if suspect.score >= settings.score]
    return tuple(sorted(enough, key=lambda suspect: (-suspect.score, suspect.node)))
