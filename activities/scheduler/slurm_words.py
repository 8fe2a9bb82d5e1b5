"""What Slurm's commands say when they fail, as the protocol's errors.

The texts are Slurm's own (``src/common/slurm_errno.c``, as of 22.05.8). A text that is not known here counts as
no answer: that leads to another read, never to giving a job up.
"""

from __future__ import annotations

from activities.scheduler.protocol import (
    Invalid,
    JobUnknown,
    NotPending,
    NotPermitted,
    Refused,
    SchedulerError,
    SchedulerUnavailable,
)
from recovery.model import JobId

_UNKNOWN_JOB = ("invalid job id specified", "invalid job array specification")
_NOT_PERMITTED = ("access/permission denied", "invalid user id", "operation not permitted")
_NOT_PENDING = ("job is no longer pending execution",)  # ExcNodeList or StartTime of a job that runs
_INVALID = (
    "invalid node name specified",
    "requested node configuration is not available",
    "invalid partition name specified",
    "invalid account or account/partition combination specified",
    "invalid qos specification",
    "requested time limit is invalid",
    "node count specification invalid",
    "invalid directive found in batch script",
    "this does not look like a batch script",
)
_REFUSED = (
    "job is pending execution",  # requeuehold of a pending job
    "job has already finished",  # an update of an ended job
    "requested operation is presently disabled",  # requeuehold of a --no-requeue job
    "requested operation not supported",
    "job not heterogeneous job leader",  # requeuehold of a het job's component
    "transition",
)
_KINDS: tuple[tuple[tuple[str, ...], type[SchedulerError]], ...] = (
    (_UNKNOWN_JOB, JobUnknown),
    (_NOT_PERMITTED, NotPermitted),
    (_NOT_PENDING, NotPending),
    (_INVALID, Invalid),
    (_REFUSED, Refused),
)
_HINTS = {
    NotPermitted: "give relight's account Slurm's AdminLevel Administrator; `relight doctor slurm` says what it lacks",
    SchedulerUnavailable: "its state is unknown until the controller answers",
}


def error_from(said: str, *, about: str) -> SchedulerError:
    """Return the protocol's error for what a failed command said; `about` says what was tried, and on which job."""
    words = said.lower()
    kind: type[SchedulerError] = SchedulerUnavailable
    for texts, candidate in _KINDS:
        if any(text in words for text in texts):
            kind = candidate
            break
    hint = f"; {_HINTS[kind]}" if kind in _HINTS else ""
    return kind(f"{about}: {last_line(said) or 'no answer'}{hint}")


def job_unknown(job_id: JobId) -> JobUnknown:
    """Return the error for a job that an answer does not tell of."""
    return JobUnknown(f"job {job_id} is not known to the controller: it never was, or ended longer than MinJobAge ago")


def last_line(said: str) -> str:
    """Return the last line of a command's complaint, bounded: the lines before it are its details."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
