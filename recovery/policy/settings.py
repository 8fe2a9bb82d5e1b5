"""The operator's limits on decisions. Every default is safe."""

from __future__ import annotations

from datetime import timedelta

from pydantic import ConfigDict, Field

from recovery.model import Category, Value
from recovery.suspects import SuspectSettings


class Budgets(Value):
    """Restarts after the first failure, by category; a new checkpoint between two failures refills them.

    Preemption and the time limit, both of category scheduler, have their own. None means no limit at all: such an end
    is nobody's fault, and `max_attempts_without_checkpoint` does not count it either.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hardware_gpu: int | None = Field(default=10, ge=0)
    hardware_network: int | None = Field(default=10, ge=0)
    host: int | None = Field(default=10, ge=0)
    storage: int | None = Field(default=5, ge=0)
    software_stack: int | None = Field(default=3, ge=0)
    user_code: int | None = Field(default=1, ge=0)
    data: int | None = Field(default=1, ge=0)
    numerical: int | None = Field(default=1, ge=0)
    scheduler: int | None = Field(default=5, ge=0)
    preemption: int | None = Field(default=None, ge=0)
    time_limit: int | None = Field(default=3, ge=0)
    infra_transient: int | None = Field(default=5, ge=0)
    unknown: int | None = Field(default=3, ge=0)

    def of(self, category: Category, cause: str) -> int | None:
        """Return the budget of a failure; one without a category has that of ``unknown``."""
        budget: int | None = getattr(self, self.name_of(category, cause))
        return budget

    @staticmethod
    def name_of(category: Category, cause: str) -> str:
        """Return the name of the budget that a failure draws on."""
        if cause in ("preemption", "time_limit"):
            return cause
        return Category.UNKNOWN.value if category is Category.NONE else category.value


class ArrayStop(Value):
    """When a failure is the whole array's: its tasks are not retried then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: int | None = Field(default=3, ge=2)
    """So many tasks must have failed in the same way; None: each task is decided on by itself."""
    fraction: float = Field(default=0.5, ge=0, le=1)
    """And so large a part of the tasks that have started."""


class PolicySettings(Value):
    """The limits that `decide` keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budgets: Budgets = Budgets()
    max_attempts_without_checkpoint: int = Field(default=3, ge=1)
    """Stop when this many attempts in a row ended without a new finished checkpoint."""
    array_stop: ArrayStop = ArrayStop()
    """When the tasks of a job array are not retried any more, because they all fail in the same way."""
    suspects: SuspectSettings = SuspectSettings()
    """When a job whose failure could not be located is kept off a node that other jobs failed by."""
    max_exclusions: int = Field(default=4, ge=0)
    """Nodes that relight keeps away from one job at the same time, the user's own not counted."""
    exclusion_hours: float = Field(default=24.0, gt=0)
    """How long a node stays excluded from a job."""
    no_requeue_exit_code: int = Field(default=93, ge=1, le=255)
    """The exit code by which a program says: do not requeue me. 93 is what NVIDIA's launchers use."""
    override_no_requeue: bool = False
    """Requeue also jobs that were submitted with ``--no-requeue``, by setting Requeue=1 first."""
    resubmit: bool = False
    """Submit a job anew that can't be requeued or has left slurmctld's memory: from its batch script, as its owner."""
    clear_requeue_delay: bool = True
    """Start a requeued job at once instead of after Slurm's delay (about 121 s)."""
    checkpoint_grace_s: float = Field(default=60.0, ge=0, le=600)
    """An attempt that is to be killed while it writes a checkpoint may go on for so long."""
    advice_lifetime_s: float = Field(default=900.0, gt=0)
    """Advice that could not be carried out within this time is abandoned."""
    approval: bool = False
    """Wait for a person's approval before each act; without one the advice expires and nothing is done."""

    @property
    def advice_lifetime(self) -> timedelta:
        """How long an advice stays valid."""
        return timedelta(seconds=self.advice_lifetime_s)
