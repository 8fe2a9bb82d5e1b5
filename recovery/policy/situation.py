"""What a decision is made from: one value that holds all of it, so that a decision can be replayed."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from recovery.arrays import ArrayStanding
from recovery.model import (
    Action,
    Category,
    Exclusion,
    JobKey,
    NodeName,
    Progress,
    Value,
    Verdict,
)
from recovery.opinion import Opinion
from recovery.optin import OptIn
from recovery.suspects import Suspicion


class Ending(Value):
    """How the attempt stands at the time of the decision, from the scheduler."""

    state: str
    """Slurm's base state, such as FAILED; RUNNING while the attempt still runs."""
    requeued: bool = False
    """The job is back in the queue already, by Slurm itself or a person; `state` is then the best guess."""
    exit_code: int = 0
    exit_signal: int = 0
    cancelled_by: str = ""
    requeueable: bool = True
    node_count: int = 1

    @property
    def running(self) -> bool:
        """Whether the attempt has not ended."""
        return self.state in ("RUNNING", "SUSPENDED")


class PastAttempt(Value):
    """One earlier attempt of the job, as policy remembers it."""

    attempt: int = Field(ge=0)
    category: Category
    cause: str = ""
    fingerprint: str = ""
    action: Action
    checkpoint: int | None = None
    """The iteration of its last finished checkpoint."""
    nodes: tuple[NodeName, ...] = ()
    stop_said_by: str = ""
    """The service whose stop came when the attempt had been restarted already."""
    restarts_before: int = Field(default=0, ge=0)
    """How often the job had been restarted before: only the newest attempts are remembered, and all restarts count."""

    @property
    def restarts_so_far(self) -> int:
        """How often the job had been restarted when this attempt was answered."""
        return self.restarts_before + (self.action in (Action.RESTART, Action.RESTART_EXCLUDE))


class Situation(Value):
    """All that `decide` looks at."""

    job: JobKey
    attempt: int = Field(ge=0)
    now: datetime
    optin: OptIn
    ending: Ending
    verdict: Verdict
    progress: Progress
    nodes: tuple[NodeName, ...] = ()
    """Those that the attempt ran on; empty: not known."""
    past: tuple[PastAttempt, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    """Those that relight or a person through relight set before and that have not ended."""
    usable_nodes: frozenset[NodeName] | None = None
    """The nodes of the job's partition on which it could run once they are free; None: not known."""
    user_excluded: tuple[NodeName, ...] = ()
    opinion: Opinion | None = None
    """What a service of the site says of this attempt; None: nothing, or not yet."""
    array: ArrayStanding | None = None
    """How the other tasks of its array have fared with this failure; None: it is in none, or that is not known."""
    suspicions: tuple[Suspicion, ...] = ()
    """What failures of other jobs say against nodes of this attempt, as far as that is known."""

    @property
    def restarts(self) -> int:
        """How often the job has been restarted."""
        return self.past[-1].restarts_so_far if self.past else 0

    @property
    def best_checkpoint_before(self) -> int | None:
        """The newest finished checkpoint of all earlier attempts."""
        steps = [past.checkpoint for past in self.past if past.checkpoint is not None]
        return max(steps, default=None)

    @property
    def made_new_checkpoint(self) -> bool:
        """Whether this attempt finished a checkpoint beyond all earlier ones."""
        step, before = self.progress.checkpoint, self.best_checkpoint_before
        return step is not None and (before is None or step > before)
