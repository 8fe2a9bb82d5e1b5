"""How the tasks of each job array have fared: a failure that hits most of them is the array's and no task's own.

Each task has a workflow of its own that knows nothing of its siblings. What they have in common is kept here, by the
cluster's workflow, bounded in every way.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from recovery.model import JobId, Value

KEPT_ARRAYS = 100
"""Arrays that are remembered; of more, the one that nothing was heard of for longest is forgotten."""
KEPT_FAILURES = 200
"""Failed tasks that are remembered of one array: enough to know a failure as systematic."""
FORGET_AFTER = timedelta(days=7)
"""Slurm uses an array's id again one day."""
MAX_FINGERPRINT_CHARS = 200


class TaskFailed(Value):
    """A task that failed, as its workflow tells."""

    array_id: JobId
    job_id: JobId
    """The task, as ``<array>_<task>``."""
    fingerprint: str = Field(max_length=MAX_FINGERPRINT_CHARS)


class ArrayStanding(Value):
    """How the tasks of an array have fared, with a view to one failure."""

    same: int = Field(ge=1)
    """Tasks whose newest failure is this one, the asking task included."""
    failed: int = Field(ge=1)
    """Tasks that failed, in whatever way."""
    completed: int = Field(default=0, ge=0)
    running: int = Field(default=0, ge=0)
    """Tasks that run in their first attempt."""

    @property
    def started(self) -> int:
        """Tasks that have got somewhere: all but those that never started."""
        return self.failed + self.completed + self.running


class TaskFailure(Value):
    """The newest failure of one task."""

    job_id: JobId
    fingerprint: str


class ArrayRecord(Value):
    """What is remembered of one array."""

    array_id: JobId
    heard_at: datetime
    completed: int = 0
    failures: tuple[TaskFailure, ...] = ()
    """One a task."""
    told: tuple[str, ...] = ()
    """The systematic failures that people were told of."""


class ArrayLedger(Value):
    """All arrays of a cluster of which something was heard, the one heard of last at the end."""

    arrays: tuple[ArrayRecord, ...] = ()

    def of(self, array_id: JobId, now: datetime) -> ArrayRecord:
        """Return what is remembered of an array; nothing, where it was not heard of for long."""
        known = (record for record in self.arrays if record.array_id == array_id)
        fresh = (record for record in known if now - record.heard_at < FORGET_AFTER)
        return next(fresh, ArrayRecord(array_id=array_id, heard_at=now))

    def with_failure(self, failed: TaskFailed, now: datetime) -> ArrayLedger:
        """Return the ledger with a task's newest failure; to tell it again changes nothing."""
        record = self.of(failed.array_id, now)
        others = tuple(failure for failure in record.failures if failure.job_id != failed.job_id)
        newest = TaskFailure(job_id=failed.job_id, fingerprint=failed.fingerprint)
        return self._with(record, now, failures=(*others, newest)[-KEPT_FAILURES:])

    def with_completed(self, array_id: JobId, now: datetime) -> ArrayLedger:
        """Return the ledger with one more task that completed."""
        record = self.of(array_id, now)
        return self._with(record, now, completed=record.completed + 1)

    def with_told(self, array_id: JobId, fingerprint: str, now: datetime) -> ArrayLedger:
        """Return the ledger with a systematic failure that people were told of."""
        record = self.of(array_id, now)
        return self._with(record, now, told=(*record.told, fingerprint)[-KEPT_FAILURES:])

    def standing(self, failed: TaskFailed, now: datetime) -> ArrayStanding:
        """Return how the array stands with regard to a failure that is in the ledger. What runs is not known here."""
        record = self.of(failed.array_id, now)
        return ArrayStanding(
            same=sum(failure.fingerprint == failed.fingerprint for failure in record.failures),
            failed=len(record.failures),
            completed=record.completed,
        )

    def _with(self, record: ArrayRecord, now: datetime, **changes: object) -> ArrayLedger:
        others = tuple(other for other in self.arrays if other.array_id != record.array_id)
        changed = record.model_copy(update={**changes, "heard_at": now})
        return ArrayLedger(arrays=(*others, changed)[-KEPT_ARRAYS:])
