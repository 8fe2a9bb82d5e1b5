"""What a cluster's workflow knows: what continue-as-new carries on, and what queries return."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.blindness import Blindness
from recovery.arrays import ArrayLedger
from recovery.governor import GovernorSettings, GovernorState, Tripped
from recovery.model import Value
from recovery.notices import NoticeBoard
from recovery.suspects import SuspectLedger, Suspicion
from workflows.options import WATCH_LEASE


class Pause(Value):
    """A person's word that relight is to touch nothing on the cluster."""

    who: str
    reason: str = ""
    since: datetime

    @property
    def says(self) -> str:
        """Who paused the cluster and why, in words."""
        return f"the cluster is paused by {self.who}" + (f": {self.reason}" if self.reason else "")


class ClusterStanding(Value):
    """How a cluster stands: what `relight status` shows of it."""

    pause: Pause | None
    restarts: int
    """Granted within the window."""
    excluded_nodes: int
    tripped: Tripped | None
    """The limit that keeps acts back now."""
    refused: str = ""
    """Why the cluster is only observed, where the operator wants acts."""
    blind: tuple[Blindness, ...] = ()
    """The sources that can't be seen: the scheduler, log stores, the store of metrics."""
    suspicions: tuple[Suspicion, ...] = ()
    """What jobs that failed within a day say against nodes."""


class ClusterMemory(Value):
    """What a cluster's workflow knows and hands on to its next run. All of it is bounded."""

    governor: GovernorState = GovernorState()
    settings: GovernorSettings = GovernorSettings()
    """The limits with which it was asked last."""
    pause: Pause | None = None
    refused: str = ""
    """Why the worker refused mode act at its start; empty: it did not."""
    tripped: Tripped | None = None
    """The last refusal by a limit."""
    tripped_at: datetime | None = None
    board: NoticeBoard = NoticeBoard()
    arrays: ArrayLedger = ArrayLedger()
    suspects: SuspectLedger = SuspectLedger()
    request_ids: tuple[str, ...] = ()
    blind: tuple[Blindness, ...] = ()
    """The sources that can't be seen, as the worker told last."""

    def is_tripped(self, now: datetime) -> bool:
        """Whether the governor has kept an act back within the window."""
        return self.tripped_at is not None and now - self.tripped_at < self.settings.window

    def standing(self, now: datetime) -> ClusterStanding:
        """Return how the cluster stands."""
        governor = self.governor.at(now, self.settings)
        return ClusterStanding(
            pause=self.pause,
            restarts=len(governor.grants),
            excluded_nodes=len(governor.excluded),
            tripped=self.tripped if self.is_tripped(now) else None,
            refused=self.refused,
            blind=self.blind,
            suspicions=self.suspects.fresh(now),
        )


class ClusterStart(Value):
    """A cluster workflow's argument."""

    cluster: str
    adopted: int = 0
    """Jobs taken under guard in earlier runs of this workflow."""
    lease: timedelta = WATCH_LEASE
    memory: ClusterMemory = ClusterMemory()
