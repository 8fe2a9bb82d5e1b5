"""``/slurmdb/job/{id}`` and ``/slurmdb/jobs/`` of slurmrestd to the attempts of a job, and to its batch script.

Seen on 22.05.8 (v0.0.38), 24.11.5 and 26.05.5: all attempts come, without being asked for, each with the submit time
that a requeue gave it, and an array's id brings all its tasks. The script comes where the version lets it be asked for,
24.11's and 26.05's newest do, and the site has ``AccountingStoreFlags=job_script``. v0.0.38 tells the exit code 0 of a
job that failed with 3; nothing is acted on through that version.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, ValidationError

from activities.scheduler.hostlist import HostlistError, expand
from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.site import AccountedAttempt
from activities.scheduler.slurm_json import Number, NumberOrNone, Part, Text, Words, first_fault
from activities.scheduler.slurm_values import state_told, text_or_empty
from activities.scheduler.squeue_json import wait_status
from recovery.model import JobId


class _Array(Part):
    job_id: Number = 0
    task_id: NumberOrNone = None


class _State(Part):
    current: Words
    reason: Text = ""


class _Times(Part):
    submission: Number
    eligible: Number = 0
    start: Number = 0
    end: Number = 0


class _Comments(Part):
    administrator: Text = ""
    job: Text = ""


class _Attempt(Part):
    job_id: int
    array: _Array = _Array()
    name: Text = ""
    user: Text = ""
    partition: Text = ""
    state: _State
    time: _Times
    nodes: Text = ""
    allocation_nodes: Number = 0
    exit_code: Annotated[int, BeforeValidator(wait_status)] = 0
    comment: _Comments = _Comments()
    kill_request_user: Text = ""
    script: Text = ""

    @property
    def told_id(self) -> JobId:
        array = self.array
        return str(self.job_id) if array.task_id is None or not array.job_id else f"{array.job_id}_{array.task_id}"


class _Answer(Part):
    jobs: tuple[_Attempt, ...]


def read_attempts(answer: str, job_id: JobId, *, teller: str) -> tuple[AccountedAttempt, ...]:
    """Return all attempts of the job, the oldest first. Raises `SchedulerUnavailable` for an answer that can't be read:
    an attempt that is left out would look like one that never was."""
    attempts = [_attempt(raw, teller) for raw in _parsed(answer, teller) if raw.told_id == job_id]
    return tuple(sorted(attempts, key=lambda attempt: attempt.submitted_at))


def read_script(answer: str, job_id: JobId, *, teller: str) -> str:
    """Return the batch script of the newest job of that id; empty where accounting has none."""
    ours = [raw for raw in _parsed(answer, teller) if raw.told_id == job_id]
    newest = max(ours, key=lambda raw: raw.time.submission, default=None)
    return newest.script if newest is not None else ""


def _parsed(answer: str, teller: str) -> tuple[_Attempt, ...]:
    try:
        return _Answer.model_validate_json(answer).jobs
    except ValidationError as error:
        raise SchedulerUnavailable(f"{teller}'s accounts: {first_fault(error)}") from error


def _attempt(raw: _Attempt, teller: str) -> AccountedAttempt:
    words = "+".join(raw.state.current)
    told = state_told(words)
    signal = raw.exit_code & 0x7F
    try:
        return AccountedAttempt(
            job_id=raw.told_id,
            job_number=str(raw.job_id),
            name=raw.name,
            user=raw.user,
            partition=raw.partition,
            state=told.state,
            state_words=words,
            flags=told.flags,
            reason=text_or_empty(raw.state.reason),
            submitted_at=datetime.fromtimestamp(raw.time.submission, UTC),
            eligible_at=_moment(raw.time.eligible),
            started_at=_moment(raw.time.start),
            ended_at=_moment(raw.time.end),
            nodes=expand(text_or_empty(raw.nodes)),
            node_count=raw.allocation_nodes,
            exit_code=0 if signal else raw.exit_code >> 8 & 0xFF,
            exit_signal=signal,
            cancelled_by=raw.kill_request_user,
            comment=raw.comment.job,
            admin_comment=raw.comment.administrator,
        )
    except (ValidationError, HostlistError, ValueError, OverflowError) as error:
        raise SchedulerUnavailable(f"{teller}'s accounts of job {raw.job_id} cannot be read: {error}") from error


def _moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
