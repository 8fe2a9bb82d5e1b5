"""What people are told of a cluster: one message for a storm of failures, not hundreds.

The first failure is told at once, and all that follow within `QUIET` of a message in one more. Everything here is
bounded: a message names the first jobs and counts the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from recovery.model import NodeName, Value

QUIET = timedelta(minutes=1)
"""How long failures are gathered after a message about failures."""
NAMED_JOBS = 20
REMEMBERED_FAILURES = 1_000
"""A failure may be reported twice when an answer was lost; so many are told apart."""
NAMED_WORDS = 10
"""Partitions, or kinds of failure, that are counted by name."""
WAITING_NOTICES = 20
"""Messages that wait for delivery; beyond them the oldest is dropped."""
OTHERS = "others"


class NoticeKind(StrEnum):
    """What a message is about."""

    FAILURES = "failures"
    ARRAY_SYSTEMATIC = "array_systematic"
    GOVERNOR_TRIPPED = "governor_tripped"
    PAUSED = "paused"
    RESUMED = "resumed"
    READMITTED = "readmitted"


class Notice(Value):
    """One message to people."""

    kind: NoticeKind
    cluster: str
    at: datetime
    text: str = Field(max_length=2_000)
    """All of it, for a person."""
    failures: int = 0
    jobs: tuple[str, ...] = ()
    """The first of the jobs that it is about."""
    partitions: Mapping[str, int] = {}
    """Failures by partition."""


class FailureSeen(Value):
    """A failed attempt, as its job's workflow tells the cluster's."""

    job: str = Field(max_length=100)
    """Cluster and job id."""
    attempt: int = Field(default=0, ge=0)
    partition: str = Field(default="", max_length=200)
    category: str = ""
    what: str = Field(default="", max_length=300)
    """The verdict, in a sentence."""
    advice: str = Field(default="", max_length=300)
    systematic: str = Field(default="", max_length=300)
    """Why its array's tasks are not retried any more; empty: that is not so."""
    array_id: str = Field(default="", max_length=20)
    fingerprint: str = Field(default="", max_length=200)
    against: Mapping[NodeName, float] = {}
    """How much the failure says against each node."""


class Gathered(Value):
    """Failures that nobody was told of yet."""

    count: int = 0
    first: FailureSeen | None = None
    jobs: tuple[str, ...] = ()
    partitions: Mapping[str, int] = {}
    categories: Mapping[str, int] = {}

    def plus(self, failure: FailureSeen) -> Gathered:
        """Return these failures and one more."""
        return Gathered(
            count=self.count + 1,
            first=self.first or failure,
            jobs=(*self.jobs, failure.job)[:NAMED_JOBS],
            partitions=_counted(self.partitions, failure.partition or "unknown"),
            categories=_counted(self.categories, failure.category or "unknown"),
        )


class NoticeBoard(Value):
    """What is to be told, and when failures were last told."""

    gathered: Gathered = Gathered()
    known: tuple[str, ...] = ()
    """Job and attempt of the newest failures that were put on the board."""
    told_failures_at: datetime | None = None
    waiting: tuple[Notice, ...] = ()

    def with_failure(self, failure: FailureSeen) -> NoticeBoard:
        """Return the board with one more failure on it; unchanged where it is there already."""
        key = f"{failure.job}#{failure.attempt}"
        if key in self.known:
            return self
        known = (*self.known, key)[-REMEMBERED_FAILURES:]
        return self.model_copy(update={"gathered": self.gathered.plus(failure), "known": known})

    def with_notice(self, notice: Notice) -> NoticeBoard:
        """Return the board with one more message on it."""
        return self.model_copy(update={"waiting": (*self.waiting, notice)[-WAITING_NOTICES:]})

    def without(self, notice: Notice) -> NoticeBoard:
        """Return the board without a message that was delivered, or given up."""
        return self.model_copy(update={"waiting": tuple(other for other in self.waiting if other != notice)})

    def quiet_for(self, now: datetime) -> timedelta:
        """Return how long to wait before the gathered failures are told."""
        return max(timedelta(), self.told_failures_at + QUIET - now) if self.told_failures_at else timedelta()

    def summed_up(self, cluster: str, now: datetime) -> NoticeBoard:
        """Return the board with the gathered failures as one message, where their time has come."""
        if not self.gathered.count or self.quiet_for(now):
            return self
        more = self.told_failures_at is not None and now - self.told_failures_at < 2 * QUIET
        notice = _of_failures(self.gathered, cluster, now, more=more)
        return self.with_notice(notice).model_copy(update={"gathered": Gathered(), "told_failures_at": now})


def _of_failures(gathered: Gathered, cluster: str, now: datetime, *, more: bool) -> Notice:
    only = gathered.first if gathered.count == 1 else None
    if only is not None:
        text = f"job {only.job} failed: {only.what.rstrip('.')}. Advice: {only.advice}"
    else:
        unnamed = gathered.count - len(gathered.jobs)
        text = (
            f"{gathered.count} {'more ' if more else ''}jobs failed on {cluster}"
            f" (partitions: {_in_words(gathered.partitions)}; causes: {_in_words(gathered.categories)}):"
            f" {', '.join(gathered.jobs)}" + (f" and {unnamed} others" if unnamed else "")
        )
    return Notice(
        kind=NoticeKind.FAILURES,
        cluster=cluster,
        at=now,
        text=text[:2_000],
        failures=gathered.count,
        jobs=gathered.jobs,
        partitions=gathered.partitions,
    )


def _counted(counts: Mapping[str, int], word: str) -> dict[str, int]:
    name = word if word in counts or len(counts) < NAMED_WORDS else OTHERS
    return {**counts, name: counts.get(name, 0) + 1}


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
