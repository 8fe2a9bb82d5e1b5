"""A submission as the words of an sbatch command.

Seen on 22.05.8: ``--uid`` is for root only, and without ``--gid`` the job gets the *caller's* group; a script that is
read from ``/dev/stdin`` may have arguments, one that is read from standard input without a name may not. With
``--get-user-env`` and next to nothing in sbatch's own environment a job gets its owner's login environment, as slurmd
finds it on the node. ``--export=NONE`` would do that too, and keep it from the job's own srun; ``--export-file`` loses
what sbatch adds, and with it the job's name in its output file's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from activities.scheduler.checked import checked_node_name
from activities.scheduler.command import OWNERS_ENVIRONMENT
from activities.scheduler.protocol import Invalid
from activities.scheduler.submission import Resources, Submission

FROM_STDIN = "/dev/stdin"
_ONE_RESOURCE = re.compile(r"(?:gres[:/])?([A-Za-z0-9_.:/=-]{1,200})")
_GPU_OPTIONS = {"job": "gpus", "socket": "gpus-per-socket", "task": "gpus-per-task"}


def sbatch_options(submission: Submission, *, for_another: bool) -> list[str]:
    """Return the words after ``sbatch --parsable``; `for_another`: the owner is not the account that runs it. Raises
    `Invalid` for what can be no part of a job."""
    words = [f"--uid={submission.owner}", f"--gid={submission.group}"] if for_another else []
    words += [f"--{name}={value}" for name, value in _told(submission) if value]
    words += ["--hold"] * submission.held + ["--exclusive"] * submission.exclusive + list(submission.more)
    if submission.requeueable is not None:
        words.append("--requeue" if submission.requeueable else "--no-requeue")
    if submission.owner:
        # Where the output goes into a file of a fixed name, it holds what the job said before.
        words += [OWNERS_ENVIRONMENT, "--open-mode=append"]
    if submission.arguments:
        words += [FROM_STDIN, *submission.arguments]
    if any("\0" in word for word in (*words, submission.script)):
        raise Invalid("a NUL can be no part of a batch job")
    return words


def _told(submission: Submission) -> Iterator[tuple[str, str]]:
    yield "job-name", submission.name
    yield "partition", submission.partition
    yield "account", submission.account
    yield "qos", submission.qos
    yield "reservation", submission.reservation
    yield "constraint", submission.constraint
    yield "licenses", submission.licenses
    yield "nodes", _number(submission.node_count)
    yield "ntasks", _number(submission.task_count)
    yield "ntasks-per-node", _number(submission.tasks_per_node)
    yield "cpus-per-task", _number(submission.cpus_per_task)
    yield "mem", _mebibytes(submission.memory_per_node_mib)
    yield "mem-per-cpu", _mebibytes(submission.memory_per_cpu_mib)
    yield "time", "" if submission.time_limit is None else str(max(1, int(submission.time_limit.total_seconds() // 60)))
    yield "comment", submission.comment
    yield "exclude", ",".join(map(checked_node_name, submission.exclude))
    yield "nodelist", ",".join(map(checked_node_name, submission.required))
    yield "chdir", submission.working_directory
    yield "output", submission.stdout
    yield "error", submission.stderr
    for resources in submission.gpus:
        yield _resource_option(resources)


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _mebibytes(number: int | None) -> str:
    return "" if number is None else f"{number}M"


def _resource_option(resources: Resources) -> tuple[str, str]:
    """``gres:gpu:h100:8`` a node is ``--gres=gpu:h100:8``; for anything else than a node there are options for GPUs."""
    items = [_one_resource(item) for item in resources.what.split(",")]
    if resources.per == "node":
        return "gres", ",".join(items)
    if any(not item.startswith("gpu:") for item in items):
        raise Invalid(f"sbatch has no option for {resources.what} a {resources.per}")
    return _GPU_OPTIONS[resources.per], ",".join(item.removeprefix("gpu:") for item in items)


def _one_resource(item: str) -> str:
    found = _ONE_RESOURCE.fullmatch(item)
    if found is None:
        raise Invalid(f"{item[:80]!r} is no generic resource")
    return found[1].replace("=", ":")
