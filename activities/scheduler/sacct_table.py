"""``sacct --parsable2`` to the attempts of jobs.

``sacct --json`` changed its shape with every version and brings all steps with all their resources; this table did not
change since 15.08. The separator is a control character, and no free text is the last column, so that a row's end is
known whatever its comment holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from activities.scheduler.hostlist import expand
from activities.scheduler.protocol import JobRecord
from activities.scheduler.site import AccountedAttempt
from activities.scheduler.slurm_values import exit_told, moment, state_told, text_or_empty
from activities.scheduler.submission import Irrecoverable, Submission
from activities.scheduler.submit_line import read_submit_line
from activities.scheduler.tables import read_table
from recovery.model import JobId

DELIMITER = "\x1f"
COLUMNS = (
    "JobID",
    "JobIDRaw",
    "JobName",
    "Comment",
    "AdminComment",
    "User",
    "Partition",
    "Reason",
    "NodeList",
    "NNodes",
    "ExitCode",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "State",
)
_NEEDED = frozenset({"JobID", "State", "Submit"})
_ARRAY_TASK = re.compile(r"[0-9]{1,12}(_[0-9]{1,9})?", re.ASCII)
_WAITING_TASKS = re.compile(r"([0-9]{1,12})_\[.*\]", re.ASCII)


def command(job_id: JobId, columns: Sequence[str] = COLUMNS) -> tuple[str, ...]:
    """Return the command that tells of all attempts of `job_id`. Without ``--starttime`` a job that is named is found
    whenever it ran."""
    return (
        "sacct",
        "--allocations",
        "--duplicates",
        "--noheader",
        "--parsable2",
        f"--delimiter={DELIMITER}",
        f"--format={','.join(columns)}",
        f"--jobs={job_id}",
    )


SUBMISSION_COLUMNS = ("JobIDRaw", "Submit", "SubmitLine", "Comment", "JobName", "User", "Group", "WorkDir", "State")
SAME_SUBMIT = timedelta(seconds=1)
"""Accounting and slurmctld may tell the submit time of an attempt a second apart."""


def submission_command(job_id: JobId) -> tuple[str, ...]:
    """Return the command that tells how the newest job of that id was submitted, attempt by attempt."""
    return command(job_id, SUBMISSION_COLUMNS)


def read_submission(answer: str, job: JobRecord, zone: tzinfo) -> Submission:
    """Return what submits `job` again but for its script, from the answer to `submission_command`.

    Raises `Irrecoverable` where accounting does not know the job, knows a newer one of its id, whose script this is
    then, or does not keep what it takes.
    """
    rows = read_table(answer, DELIMITER, SUBMISSION_COLUMNS).rows
    newest = max(rows, key=lambda row: _submitted(row["Submit"], zone), default=None)
    if newest is None:
        raise Irrecoverable(f"neither slurmctld nor accounting knows job {job.job_id}")
    if abs(_submitted(newest["Submit"], zone) - job.submitted_at) > SAME_SUBMIT or newest["User"] != job.user:
        raise Irrecoverable(f"the newest job {job.job_id} that accounting knows is another one")
    comment, name = newest["Comment"], newest["JobName"]
    line = read_submit_line(newest["SubmitLine"], job_id=job.job_id, comment=comment, name=name)
    return Submission(
        script="",
        arguments=line.arguments,
        owner=newest["User"],
        group=newest["Group"],
        name=name,
        comment=job.comment,
        exclude=job.excluded_nodes,
        requeueable=job.requeueable,
        working_directory=newest["WorkDir"],
        more=line.options,
    )


class Accounts(NamedTuple):
    """What one answer of sacct tells."""

    attempts: tuple[AccountedAttempt, ...]
    """Of each job the oldest attempt first; steps are left out."""
    unreadable: int
    """How many rows and lines could not be understood."""


def read_attempts(
    answer: str, zone: tzinfo, *, delimiter: str = DELIMITER, columns: Sequence[str] = COLUMNS
) -> Accounts:
    """Return the attempts that a table tells of; no `columns`: its first line names them. `zone`: of the host where
    sacct ran, for times without an offset.

    Raises `TableError` when the text is no table; a row that makes no sense is counted and left out.
    """
    table = read_table(answer, delimiter, columns)
    attempts, unreadable = [], table.unreadable
    for row in table.rows:
        if _is_step(row.get("JobID", "")):
            continue
        try:
            attempts.append(_attempt(row, zone))
        except ValueError:
            unreadable += 1
    return Accounts(tuple(sorted(attempts, key=lambda attempt: (attempt.job_id, attempt.submitted_at))), unreadable)


def _is_step(job_id: str) -> bool:
    """Steps are ``123.batch``, ``123_4.0``, ``123+1.extern``."""
    return "." in job_id


def _attempt(row: Mapping[str, str], zone: tzinfo) -> AccountedAttempt:
    if missing := _NEEDED - row.keys():
        raise ValueError(f"the table has no column {', '.join(sorted(missing))}")
    told = state_told(row["State"])
    exit_code, exit_signal = exit_told(row.get("ExitCode", ""))
    return AccountedAttempt(
        job_id=_job_id(row),
        job_number=row.get("JobIDRaw", ""),
        name=row.get("JobName", ""),
        user=row.get("User", ""),
        partition=row.get("Partition", ""),
        state=told.state,
        state_words=row["State"],
        flags=told.flags,
        reason=text_or_empty(row.get("Reason", "")),
        submitted_at=_submitted(row["Submit"], zone),
        eligible_at=moment(row.get("Eligible", ""), zone),
        started_at=moment(row.get("Start", ""), zone),
        ended_at=moment(row.get("End", ""), zone),
        nodes=expand(text_or_empty(row.get("NodeList", ""))),
        node_count=int(row.get("NNodes") or 0),
        exit_code=exit_code,
        exit_signal=exit_signal,
        cancelled_by=told.cancelled_by,
        comment=row.get("Comment", ""),
        admin_comment=row.get("AdminComment", ""),
    )


def _job_id(row: Mapping[str, str]) -> JobId:
    """A het component ``123+1`` goes by its own number, and what is left of an array by the array's."""
    job_id = row["JobID"]
    if _ARRAY_TASK.fullmatch(job_id):
        return job_id
    if waiting := _WAITING_TASKS.fullmatch(job_id):
        return waiting[1]
    return row.get("JobIDRaw", job_id)


def _submitted(text: str, zone: tzinfo) -> datetime:
    submitted_at = moment(text, zone)
    if submitted_at is None:
        raise ValueError("an attempt without a submit time")
    return submitted_at
