"""The program in which pyslurm runs: one question on its standard input, one answer on its standard output, both JSON.

`activities.scheduler.slurm_library` starts it for each call, for three reasons. pyslurm keeps Python's lock for as long
as the controller takes to answer, which would stop the worker's heartbeats; Slurm's library ends its process over a
slurm.conf that it cannot read; and only a process can be given up at a deadline. It needs pyslurm and Python's own
library, nothing of relight, so that any Python that has the site's pyslurm can run it.

Jobs are told as ``squeue --json`` of Slurm 22.05 tells them, nodes as slurmrestd does, a refusal as Slurm's commands
do: on standard error, with the exit code 1. What pyslurm 25.11 makes of Slurm's answers, and what is made of that here:

* A reason with a description loses the reason: both are told as the one that is left.
* The task number 0 comes as None. A record that stands for the rest of its array has tasks waiting, a task has none.
* Bytes that are not UTF-8 make reading a text fail: they are replaced.
* An update takes no empty value, which would leave the field as it is.
* What failed is told by the number of the process's last error, even where nothing failed: see `_cancel`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SLURMS_FIRST_ERROR = 1000
"""Numbers of Slurm's own errors start here; those below are the operating system's (Slurm's ``slurm_errno.h``)."""
REFUSED = 1
CANNOT_IMPORT = 3
_ALIVE = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING")


def main() -> int:
    """Answer the question and return the exit code."""
    question = json.load(sys.stdin)
    try:
        import pyslurm
    except ImportError as error:
        return _complain(str(error), CANNOT_IMPORT)
    try:
        answer = VERBS[question["verb"]](pyslurm, question)
    except pyslurm.RPCError as error:
        return _complain(str(error), REFUSED)
    json.dump(answer, sys.stdout)
    return 0


def _complain(text: str, exit_code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return exit_code


# --- reading --------------------------------------------------------------------------------------------------------


def _releases(pyslurm: Any, _question: dict[str, Any]) -> dict[str, Any]:
    return {"pyslurm": pyslurm.__version__, "controller": pyslurm.slurmctld.Config.load().version}


def _site(pyslurm: Any, _question: dict[str, Any]) -> dict[str, Any]:
    conf = pyslurm.slurmctld.Config.load()
    return {
        "version": conf.version,
        "cluster_name": conf.cluster_name,
        "min_job_age_s": conf.min_job_age,
        "kill_wait_s": conf.kill_wait_time,
        "preempt_mode": conf.preempt_mode,
        "job_requeue": conf.job_requeue,
        "max_batch_requeue": conf.max_batch_requeue,
        "accounting_storage_type": conf.accounting_storage_type,
        "accounting_store_flags": conf.accounting_store_flags,
        "scheduler_parameters": conf.scheduler_parameters,
        "auth_info": conf.auth_info,
        "slurm_user": conf.slurm_user_name,
        "private_data": conf.private_data,
        "controllers": [
            {"host": ping.hostname, "is_primary": ping.is_primary, "answers": ping.is_responding}
            for ping in pyslurm.slurmctld.ping_all()
        ],
    }


def _script(pyslurm: Any, question: dict[str, Any]) -> dict[str, Any]:
    return {"script": pyslurm.Job(question["job"]).get_batch_script()}


def _jobs(pyslurm: Any, _question: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": [_job_as_told(job) for job in pyslurm.Jobs.load().values()]}


def _job(pyslurm: Any, question: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": [_job_as_told(pyslurm.Job.load(question["job"]))]}


def _nodes(pyslurm: Any, _question: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "name": node.name,
                "state": _text(node, "state").split("+"),
                "reason": _text(node, "reason"),
                "partitions": node.partitions,
                "features": node.available_features,
            }
            for node in pyslurm.Nodes.load().values()
        ]
    }


def _job_as_told(job: Any) -> dict[str, Any]:
    reason = _text(job, "state_reason")
    return {
        "job_id": job.id,
        "array_job_id": job.array_id or 0,
        "array_task_id": _task_number(job),
        "het_job_id": job.heterogeneous_id or 0,
        "name": _text(job, "name"),
        "user_name": _text(job, "user_name"),
        "partition": _text(job, "partition"),
        "job_state": _text(job, "state"),
        "state_reason": reason,
        "state_description": reason,
        "priority": 0 if job.priority == 0 else None,
        "restart_cnt": job.requeue_count,
        "submit_time": job.submit_time or 0,
        "eligible_time": job.eligible_time or 0,
        "start_time": job.start_time or 0,
        "end_time": job.end_time or 0,
        "nodes": _text(job, "allocated_nodes"),
        "node_count": job.num_nodes or 0,
        "excluded_nodes": _text(job, "excluded_nodes"),
        "required_nodes": _text(job, "required_nodes"),
        "resv_name": _text(job, "reservation"),
        "features": ",".join(job.constraints),
        "comment": _text(job, "comment"),
        "admin_comment": _text(job, "admin_comment"),
        "requeue": job.is_requeueable,
        "exit_code": job.exit_code << 8 | job.exit_code_signal,
        "batch_flag": job.is_batch_job,
        "batch_host": _text(job, "batch_host"),
        "standard_output": _text(job, "standard_output"),
        "standard_error": _text(job, "standard_error"),
        "current_working_directory": _text(job, "working_directory"),
    }


def _task_number(job: Any) -> int | None:
    if job.array_id is None or job.array_tasks_waiting is not None:
        return None
    return job.array_task_id or 0


def _text(record: Any, name: str) -> str:
    try:
        return getattr(record, name) or ""
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


# --- acting ---------------------------------------------------------------------------------------------------------


def _requeue(pyslurm: Any, question: dict[str, Any]) -> dict[str, Any]:
    pyslurm.Job(question["job"]).requeue(hold=question["hold"])
    return {}


def _modify(pyslurm: Any, question: dict[str, Any]) -> dict[str, Any]:
    pyslurm.Job(question["job"]).modify(pyslurm.JobSubmitDescription(**question["changes"]))
    return {}


def _release(pyslurm: Any, question: dict[str, Any]) -> dict[str, Any]:
    pyslurm.Job(question["job"]).release()
    return {}


def _cancel(pyslurm: Any, question: dict[str, Any]) -> dict[str, Any]:
    """An error that is not Slurm's may be an old one of the process: whether the job still lives decides."""
    job = pyslurm.Job.load(question["job"])
    try:
        job.cancel()
    except pyslurm.RPCError as error:
        if error.errno >= SLURMS_FIRST_ERROR or pyslurm.Job.load(question["job"]).state in _ALIVE:
            raise
    return {}


VERBS = {
    "releases": _releases,
    "site": _site,
    "script": _script,
    "jobs": _jobs,
    "job": _job,
    "nodes": _nodes,
    "requeue": _requeue,
    "modify": _modify,
    "release": _release,
    "cancel": _cancel,
}

if __name__ == "__main__":
    raise SystemExit(main())
