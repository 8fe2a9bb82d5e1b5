"""``squeue --json`` and slurmrestd's ``/jobs`` to job records: both are written by Slurm's data parser.

One answer tells of all jobs, ended ones included until MinJobAge is over, and its text needs no guessing where a
comment ends. Seen on 22.05.8 (data format v0.0.38): the whole list comes whatever is asked for; numbers are plain, the
state is one word, and a state *flag* such as COMPLETING hides the state beneath it. Later versions wrap numbers as
``{"set", "infinite", "number"}`` and list the state with its flags; both forms are read here.

A controller that cannot be reached does not make the command fail: exit code 0, an empty list of jobs, and the reason
under ``errors`` (seen on 22.05.8 with slurmctld dead, stalled, and without munge). That is no answer, never "no jobs".
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from activities.scheduler.dependency import NO_DEPENDENCY, read_dependency
from activities.scheduler.filename_pattern import BatchFile, expanded_path
from activities.scheduler.het_jobs import joined
from activities.scheduler.hostlist import HostlistError, expand
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState, SchedulerUnavailable
from activities.scheduler.slurm_json import Number, NumberOrNone, Part, Text, Words, first_fault, number_or_zero
from activities.scheduler.slurm_words import job_unknown
from recovery.model import JobId

_FLAGS = frozenset(flag.value for flag in JobFlag)
_BASE_STATES = frozenset(state.value for state in JobState) - {JobState.UNKNOWN}
_STATE_BENEATH = {
    "CONFIGURING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STOPPED": JobState.SUSPENDED,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
}
"""What a job is when only this flag is shown of its state."""


def wait_status(value: Any) -> Any:
    """Bring an exit code to the form that wait(2) gives, which 22.05 shows as it is: ``code << 8 | signal``."""
    if not isinstance(value, dict) or "return_code" not in value:
        return number_or_zero(value)
    died_of = value.get("signal") or {}
    return number_or_zero(value["return_code"]) << 8 | number_or_zero(died_of.get("id", died_of.get("signal_id")))


class _RawError(Part):
    error: Text = ""
    description: Text = ""


class _RawJob(Part):
    """The fields of one job that are used, with the names that Slurm gives them."""

    job_id: int
    array_job_id: Number = 0
    array_task_id: NumberOrNone = None
    het_job_id: Number = 0
    name: Text = ""
    user_name: Text = ""
    partition: Text = ""
    job_state: Words
    state_reason: Text = ""
    state_description: Text = ""
    priority: NumberOrNone = None
    restart_cnt: Number = 0
    submit_time: Number
    eligible_time: Number = 0
    start_time: Number = 0
    end_time: Number = 0
    nodes: Text = ""
    node_count: Number = 0
    tasks_per_node: Number = 0
    excluded_nodes: Text = ""
    required_nodes: Text = ""
    resv_name: Text = ""
    features: Text = ""
    comment: Text = ""
    admin_comment: Text = ""
    dependency: Text = ""
    requeue: bool = True
    exit_code: Annotated[int, BeforeValidator(wait_status)] = 0
    batch_flag: bool = True
    batch_host: Text = ""
    standard_output: Text = ""
    standard_error: Text = ""
    stdout_expanded: Text = ""
    stderr_expanded: Text = ""
    current_working_directory: Text = ""


_ERRORS = TypeAdapter(tuple[_RawError, ...])


class _Answer(msgspec.Struct):
    """An answer of which nothing is read yet but where each job begins and ends. An answer of thirty megabytes is a
    tree of two hundred once it is read as a whole (pydantic 2), and of each job most is passed over."""

    jobs: list[msgspec.Raw]
    errors: msgspec.Raw = msgspec.Raw(b"[]")


def read_jobs(answer: str, read_at: datetime, *, teller: str = "squeue") -> tuple[JobRecord, ...]:
    """Return the jobs that `answer` tells of; `read_at` is our clock when it came, `teller` names who gave it.

    Raises `SchedulerUnavailable` when it is no well-formed answer, or one that reports an error: one unreadable record
    makes the whole answer unusable, since a job that is left out would look like one that vanished.
    """
    return joined(_record(job, read_at, teller) for job in _parsed(answer, teller))


def raw_job(answer: str, job_id: JobId, *, teller: str = "squeue") -> bytes:
    """Return the JSON of one job out of an answer, for a reader of other fields than these. Raises `JobUnknown` where
    the answer does not tell of it, and `SchedulerUnavailable` as `read_jobs` does."""
    for part in _parts(answer, teller):
        if _job_id(_read(part, teller)) == job_id:
            return bytes(part)
    raise job_unknown(job_id)


def _parsed(answer: str, teller: str) -> Iterator[_RawJob]:
    for part in _parts(answer, teller):
        yield _read(part, teller)


def _parts(answer: str, teller: str) -> list[msgspec.Raw]:
    """Take an answer apart, a part for each job."""
    try:
        found = msgspec.json.decode(answer, type=_Answer)
        errors = _ERRORS.validate_json(bytes(found.errors))
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchedulerUnavailable(f"{teller}'s answer of {len(answer)} characters: {error}") from error
    except ValidationError as error:
        raise SchedulerUnavailable(f"{teller}'s answer, its errors: {first_fault(error)}") from error
    if errors:
        told = "; ".join(f"{error.description} ({error.error})" for error in errors)
        raise SchedulerUnavailable(f"{teller} could not ask the controller: {told[:300]}")
    return found.jobs


def _read(part: msgspec.Raw, teller: str) -> _RawJob:
    try:
        return _RawJob.model_validate_json(bytes(part))
    except ValidationError as error:
        raise SchedulerUnavailable(f"{teller}'s answer, a job in it: {first_fault(error)}") from error


def _record(raw: _RawJob, read_at: datetime, teller: str) -> JobRecord:
    state, flags = _state(raw, read_at)
    pending = state is JobState.PENDING
    try:
        return JobRecord(
            job_id=_job_id(raw),
            job_number=str(raw.job_id),
            name=raw.name,
            user=raw.user_name,
            partition=raw.partition,
            state=state,
            flags=flags,
            reason=_reason(raw),
            hold=_hold(raw) if pending else _hold_to_come(raw, state),
            restart_count=raw.restart_cnt,
            submitted_at=datetime.fromtimestamp(raw.submit_time, UTC),
            eligible_at=_moment(raw.eligible_time),
            started_at=None if pending else _moment(raw.start_time),
            ended_at=_moment(raw.end_time) if _attempt_ended(state, flags) else None,
            nodes=() if pending else expand(raw.nodes),
            node_count=raw.node_count,
            tasks_per_node=raw.tasks_per_node,
            excluded_nodes=expand(raw.excluded_nodes),
            required_nodes=expand(raw.required_nodes),
            reservation=raw.resv_name,
            constraint=raw.features,
            comment=raw.comment,
            admin_comment=raw.admin_comment,
            dependency=read_dependency(raw.dependency) if raw.dependency else NO_DEPENDENCY,
            requeueable=raw.requeue,
            exit_code=0 if _signal(raw) else raw.exit_code >> 8 & 0xFF,
            exit_signal=_signal(raw),
            batch_host="" if pending else raw.batch_host,
            stdout=_stdout(raw),
            stderr=_stderr(raw),
            work_dir=raw.current_working_directory,
            array_job_id=str(raw.array_job_id) if raw.array_job_id else "",
            het_leader_id=str(raw.het_job_id) if raw.het_job_id not in (0, raw.job_id) else "",
        )
    except (ValidationError, HostlistError, ValueError, OverflowError) as error:
        raise SchedulerUnavailable(f"{teller}'s answer for job {raw.job_id} cannot be read: {error}") from error


def _job_id(raw: _RawJob) -> str:
    """An array whose pending tasks are not apart yet is one record under the array's own id."""
    if not raw.array_job_id:
        return str(raw.job_id)
    return str(raw.array_job_id) if raw.array_task_id is None else f"{raw.array_job_id}_{raw.array_task_id}"


def _state(raw: _RawJob, read_at: datetime) -> tuple[JobState, frozenset[JobFlag]]:
    words = frozenset(word.upper() for word in raw.job_state)
    flags = frozenset(JobFlag(word) for word in words & _FLAGS)
    if base := words & _BASE_STATES:
        state = JobState(min(base))
        # Newer releases say RUNNING as well of a job that a person stopped by signal.
        return (JobState.SUSPENDED if state is JobState.RUNNING and "STOPPED" in words else state), flags
    if words == {"COMPLETING"}:
        return (JobState.PENDING if _goes_back(raw, read_at) else JobState.UNKNOWN), flags
    beneath = {_STATE_BENEATH[word] for word in words if word in _STATE_BENEATH}
    return (beneath.pop() if len(beneath) == 1 else JobState.UNKNOWN), flags


def _goes_back(raw: _RawJob, read_at: datetime) -> bool:
    """Whether a job of which only COMPLETING is shown was requeued. The end of a job that ended is past; that of a
    requeued one is told as now plus its time limit."""
    ends_at = _moment(raw.end_time)
    return _hold(raw) is not Hold.NONE or (ends_at is not None and ends_at > read_at + timedelta(seconds=30))


def _attempt_ended(state: JobState, flags: frozenset[JobFlag]) -> bool:
    return state.ended or (state is JobState.UNKNOWN and JobFlag.COMPLETING in flags)


def _reason(raw: _RawJob) -> str:
    return raw.state_description.replace(" ", "_") or raw.state_reason


def _hold(raw: _RawJob) -> Hold:
    """A person's hold upon ours shows as JobHeldAdmin with our description left in place: the reason goes first."""
    if raw.state_reason in ("JobHeldAdmin", "JobHoldMaxRequeue"):
        return Hold.ADMIN
    if "requeued in held state" in raw.state_description:
        return Hold.REQUEUED
    if "launch failed requeued held" in raw.state_description:
        return Hold.LAUNCH_FAILED
    return Hold.USER if raw.state_reason == "JobHeldUser" else Hold.NONE


def _hold_to_come(raw: _RawJob, state: JobState) -> Hold:
    """A person's hold on a job that is not pending. While it runs the reason tells (seen on 22.05), once it has ended
    only the priority of 0 does, and not whose hold it is. A suspended job has that priority by itself."""
    if raw.state_reason == "JobHeldAdmin":
        return Hold.ADMIN
    held = raw.state_reason == "JobHeldUser" or (state.ended and raw.priority == 0)
    return Hold.USER if held else Hold.NONE


def _stdout(raw: _RawJob) -> str:
    return raw.stdout_expanded or (expanded_path(raw.standard_output, _batch_file(raw)) if _has_files(raw) else "")


def _stderr(raw: _RawJob) -> str:
    if raw.stderr_expanded or not raw.standard_error:
        return raw.stderr_expanded or _stdout(raw)
    return expanded_path(raw.standard_error, _batch_file(raw)) if _has_files(raw) else ""


def _has_files(raw: _RawJob) -> bool:
    """Whether this is a batch script, and one task rather than the rest of an array."""
    return raw.batch_flag and (raw.array_job_id == 0 or raw.array_task_id is not None)


def _batch_file(raw: _RawJob) -> BatchFile:
    return BatchFile(
        job_number=str(raw.job_id),
        array_job_id=str(raw.array_job_id) if raw.array_job_id else "",
        array_task_id="" if raw.array_task_id is None else str(raw.array_task_id),
        name=raw.name,
        user=raw.user_name,
        batch_host=raw.batch_host,
        work_dir=raw.current_working_directory,
    )


def _signal(raw: _RawJob) -> int:
    return raw.exit_code & 0x7F


def _moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
