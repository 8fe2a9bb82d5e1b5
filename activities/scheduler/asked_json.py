"""What a job asked for when it was submitted, from ``squeue --json`` or slurmrestd: enough to submit it again.

Seen on 22.05.8: ``cpus_per_task`` is not told, and ``cpus`` counts what was allocated; what was asked for stands in
``tres_req_str``. Script and arguments are one text under ``command``, with blanks between them; file names are told
with their patterns. What sbatch was told about signals, mails and the environment is not told at all. 26.05 tells the
whole command line, and leaves the arguments out of ``command``. 24.11 leaves them out too, and tells them nowhere.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from activities.scheduler.hostlist import HostlistError, expand
from activities.scheduler.protocol import JobRecord, SchedulerUnavailable
from activities.scheduler.slurm_json import Number, Part, Text, Words, first_fault
from activities.scheduler.squeue_json import raw_job
from activities.scheduler.submission import Irrecoverable, Resources, Submission
from activities.scheduler.submit_line import read_submit_line

_CPUS = re.compile(r"(?:^|,)cpu=([0-9]{1,9})(?:,|$)")


class ArgumentsUnknown(Irrecoverable):
    """This release of Slurm does not tell the arguments of the script: accounting does."""


class _Asked(Part):
    account: Text = ""
    qos: Text = ""
    partition: Text = ""
    name: Text = ""
    user_name: Text = ""
    group_name: Text = ""
    resv_name: Text = ""
    features: Text = ""
    licenses: Text = ""
    comment: Text = ""
    command: Text = ""
    submit_line: Text = ""
    array_job_id: Any = 0
    """Plain where ``command`` holds the arguments, wrapped where it does not."""
    current_working_directory: Text = ""
    standard_output: Text = ""
    standard_error: Text = ""
    excluded_nodes: Text = ""
    required_nodes: Text = ""
    node_count: Number = 0
    tasks: Number = 0
    tasks_per_node: Number = 0
    memory_per_node: Number = 0
    memory_per_cpu: Number = 0
    time_limit: Number = 0
    """In minutes; 0: none."""
    tres_req_str: Text = ""
    tres_per_job: Text = ""
    tres_per_node: Text = ""
    tres_per_socket: Text = ""
    tres_per_task: Text = ""
    shared: Words | None = None
    requeue: bool = True
    batch_flag: bool = True


def read_submission(answer: str, job: JobRecord, script: str, *, teller: str) -> Submission:
    """Return what submits `job` again, from an answer that tells of it, with its `script`.

    Raises `Irrecoverable` where it was no batch job, `ArgumentsUnknown`, and `SchedulerUnavailable` for an answer that
    can't be read.
    """
    try:
        asked = _Asked.model_validate_json(raw_job(answer, job.job_id, teller=teller))
    except ValidationError as error:
        raise SchedulerUnavailable(f"{teller}'s answer for job {job.job_id}: {first_fault(error)}") from error
    if not asked.batch_flag:
        raise Irrecoverable(f"job {job.job_id} was started without a batch script")
    try:
        if asked.submit_line:
            return _by_line(asked, job, script)
        if isinstance(asked.array_job_id, dict):
            raise ArgumentsUnknown(f"{teller} does not tell how the script of job {job.job_id} was called")
        return _by_fields(asked, script)
    except (HostlistError, ValidationError) as error:
        raise SchedulerUnavailable(f"{teller}'s answer for job {job.job_id} cannot be read: {error}") from error


def _by_line(asked: _Asked, job: JobRecord, script: str) -> Submission:
    line = read_submit_line(asked.submit_line, job_id=job.job_id, comment=asked.comment, name=asked.name)
    return Submission(
        script=script,
        arguments=line.arguments,
        owner=asked.user_name,
        group=asked.group_name,
        name=asked.name,
        comment=asked.comment,
        exclude=expand(asked.excluded_nodes),
        required=expand(asked.required_nodes),
        requeueable=asked.requeue,
        working_directory=asked.current_working_directory,
        more=line.options,
    )


def _by_fields(asked: _Asked, script: str) -> Submission:
    return Submission(
        script=script,
        arguments=tuple(asked.command.split()[1:]),
        owner=asked.user_name,
        group=asked.group_name,
        name=asked.name,
        partition=asked.partition,
        account=asked.account,
        qos=asked.qos,
        reservation=asked.resv_name,
        constraint=asked.features,
        licenses=asked.licenses,
        node_count=asked.node_count or None,
        task_count=asked.tasks or None,
        tasks_per_node=asked.tasks_per_node or None,
        cpus_per_task=_cpus_per_task(asked),
        memory_per_node_mib=asked.memory_per_node or None,
        memory_per_cpu_mib=asked.memory_per_cpu or None,
        gpus=_resources(asked),
        exclusive="none" in (asked.shared or ()),
        time_limit=timedelta(minutes=asked.time_limit) if asked.time_limit else None,
        comment=asked.comment,
        exclude=expand(asked.excluded_nodes),
        required=expand(asked.required_nodes),
        requeueable=asked.requeue,
        working_directory=asked.current_working_directory,
        stdout=asked.standard_output,
        stderr=asked.standard_error,
    )


def _cpus_per_task(asked: _Asked) -> int | None:
    found = _CPUS.search(asked.tres_req_str)
    if found is None or not asked.tasks:
        return None
    cpus, rest = divmod(int(found[1]), asked.tasks)
    return cpus if cpus > 1 and not rest else None


def _resources(asked: _Asked) -> tuple[Resources, ...]:
    found = (
        Resources(per="job", what=asked.tres_per_job),
        Resources(per="node", what=asked.tres_per_node),
        Resources(per="socket", what=asked.tres_per_socket),
        Resources(per="task", what=asked.tres_per_task),
    )
    return tuple(resources for resources in found if resources.what)
