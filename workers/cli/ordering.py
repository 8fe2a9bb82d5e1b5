"""A person's word to a job's workflow, and `watch`, which starts one by hand."""

from __future__ import annotations

import asyncio
import getpass
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workers.cli.context import Json, Options, job_reference, run
from workers.cli.output import CliError, print_json

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

    from recovery.model import Mode
    from workers.settings import Settings
    from workflows.overrides import Answer, Request, Verb

UPDATE_TRIES = 4
UPDATE_PAUSE_S = 0.5

Job = Annotated[str, typer.Argument(help="Slurm job id, or cluster/id.")]
MaybeJob = Annotated[str, typer.Argument(help="Slurm job id, or cluster/id.", show_default=False)]
Cluster = Annotated[str, typer.Option("--cluster", help="A whole cluster, in the place of a job.")]
JobAndNodes = Annotated[list[str], typer.Argument(metavar="[JOB] NODE", help="Not the job with --cluster.")]
Nodes = Annotated[list[str], typer.Argument(help="Node names.")]
Reason = Annotated[str, typer.Option("--reason", "-m", help="Why; it goes on record.")]
Generation = Annotated[int | None, typer.Option("--generation", help="Only if this is the advice that waits.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (watch, approve, reject, restart, stop, exclude, readmit, pause, resume, mode):
        app.command()(command)


def approve(
    context: typer.Context, job: Job, reason: Reason = "", generation: Generation = None, as_json: Json = False
) -> None:
    """Approve the advice that waits for approval."""
    _order(context, "approve", job, reason, as_json=as_json, generation=generation)


def reject(
    context: typer.Context, job: Job, reason: Reason = "", generation: Generation = None, as_json: Json = False
) -> None:
    """Reject the advice that waits for approval."""
    _order(context, "reject", job, reason, as_json=as_json, generation=generation)


def restart(context: typer.Context, job: Job, reason: Reason = "", as_json: Json = False) -> None:
    """Requeue the job now, keeping it off the excluded nodes."""
    _order(context, "restart", job, reason, as_json=as_json)


def stop(context: typer.Context, job: Job, reason: Reason = "", as_json: Json = False) -> None:
    """Stop the job for good."""
    _order(context, "stop", job, reason, as_json=as_json)


def exclude(context: typer.Context, job: Job, nodes: Nodes, reason: Reason = "", as_json: Json = False) -> None:
    """Keep nodes away from the job's next attempts."""
    _order(context, "exclude", job, reason, as_json=as_json, nodes=tuple(nodes))


def readmit(
    context: typer.Context, words: JobAndNodes, cluster: Cluster = "", reason: Reason = "", as_json: Json = False
) -> None:
    """Withdraw relight's exclusion of nodes from a job.

    With --cluster: the nodes are repaired, and what failed jobs of the cluster said against them is forgotten.
    """
    job, nodes = ("", words) if cluster else (words[0], words[1:])
    _order(context, "readmit", job, reason, as_json=as_json, cluster=cluster, nodes=tuple(nodes))


def pause(
    context: typer.Context, job: MaybeJob = "", cluster: Cluster = "", reason: Reason = "", as_json: Json = False
) -> None:
    """Only watch a job, or a whole cluster, until resumed.

    Jobs of a paused cluster are advised on, and nothing is carried out but what a person orders for a single job.
    """
    _order(context, "pause", job, reason, as_json=as_json, cluster=cluster)


def resume(
    context: typer.Context, job: MaybeJob = "", cluster: Cluster = "", reason: Reason = "", as_json: Json = False
) -> None:
    """Go on after a pause. What was kept back and has not expired is carried out."""
    _order(context, "resume", job, reason, as_json=as_json, cluster=cluster)


def mode(
    context: typer.Context,
    job: Job,
    mode: Annotated[str, typer.Argument(help="observe or act.")],
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Set the job's mode."""
    from recovery.model import Mode

    if mode not in list(Mode):
        raise CliError(f"{mode[:40]!r} is not a mode", "give observe or act")
    _order(context, "mode", job, reason, as_json=as_json, mode=Mode(mode))


def watch(
    context: typer.Context,
    job: Job,
    if_opted_in: Annotated[bool, typer.Option("--if-opted-in", help="Leave a job alone that did not opt in.")] = False,
    as_json: Json = False,
) -> None:
    """Take a job under guard now.

    One that did not opt in is watched in observe mode.
    """
    options: Options = context.obj
    settings = options.settings()
    text = run(_watch(settings, job, if_opted_in=if_opted_in))
    _answer(text, as_json=as_json)


def _order(
    context: typer.Context,
    verb: str,
    job: str,
    reason: str,
    *,
    as_json: bool,
    nodes: tuple[str, ...] = (),
    mode: Mode | None = None,
    generation: int | None = None,
    cluster: str = "",
) -> None:
    from pydantic import ValidationError

    from workflows.overrides import Request, Verb

    options: Options = context.obj
    settings = options.settings()
    try:
        request = Request(
            who=getpass.getuser(),
            reason=reason,
            request_id=str(uuid.uuid4()),
            nodes=nodes,
            mode=mode,
            generation=generation,
        )
    except ValidationError as error:
        raise CliError(f"{verb} was not sent: {error.errors()[0]['msg']}") from error
    if bool(job) == bool(cluster):
        raise CliError(f"{verb} needs a job or a cluster", f"relight {verb} JOB, or relight {verb} --cluster NAME")
    addressee = _whole_cluster(cluster, settings) if cluster else _one_job(job, settings)
    _answer(run(_send(settings, addressee, Verb(verb), request)), as_json=as_json)


@dataclass(frozen=True)
class _Addressee:
    """The workflow that a word goes to, and what to say where there is none."""

    workflow_id: str
    missing: CliError


def _one_job(job: str, settings: Settings) -> _Addressee:
    cluster, job_id = job_reference(job, settings)
    missing = CliError(f"job {job} is not under guard", "see `relight status`, or `relight watch JOB`")
    return _Addressee(f"recovery/{cluster.name}/{job_id}", missing)


def _whole_cluster(name: str, settings: Settings) -> _Addressee:
    from activities.governor import cluster_workflow_id

    configured = [cluster.name for cluster in settings.clusters]
    if name not in configured:
        known = ", ".join(configured) or "none"
        raise CliError(f"cluster {name[:60]!r} is not configured; configured: {known}", "see clusters: in relight.yaml")
    missing = CliError(f"cluster {name} is not looked after", "is a worker running? try `relight up`")
    return _Addressee(cluster_workflow_id(name), missing)


async def _send(settings: Settings, addressee: _Addressee, verb: Verb, request: Request) -> str:
    from temporalio.client import WorkflowUpdateFailedError
    from temporalio.service import RPCError, RPCStatusCode

    from workers.connection import connect

    client = await connect(settings)
    handle = client.get_workflow_handle(addressee.workflow_id)
    try:
        answer = await _update(handle, verb, request)
    except WorkflowUpdateFailedError as error:
        raise CliError(f"{verb.value} was refused: {_said(error.cause)}") from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise addressee.missing from error
        raise CliError(f"{verb.value} got no answer: {error.message[:200]}", "is a worker running?") from error
    return answer.text


async def _update(handle: WorkflowHandle[Any, Any], verb: Verb, request: Request) -> Answer:
    """Send an update; again where it met the workflow's change to a new run. The request's id makes it count once."""
    from temporalio.service import RPCError, RPCStatusCode

    from workflows.overrides import Answer

    for attempt in range(UPDATE_TRIES):
        try:
            answer: Answer = await handle.execute_update(verb.value, request, id=request.request_id, result_type=Answer)
        except RPCError as error:
            if error.status is not RPCStatusCode.FAILED_PRECONDITION or attempt == UPDATE_TRIES - 1:
                raise
            await asyncio.sleep(UPDATE_PAUSE_S)
        else:
            return answer
    raise AssertionError("the last try returns or raises")


def _said(error: BaseException | None) -> str:
    """What the workflow itself said, without the class that Temporal wraps it in."""
    return str(getattr(error, "message", error))


async def _watch(settings: Settings, job: str, *, if_opted_in: bool) -> str:
    from activities.adopt import Adopter, Guard
    from activities.scheduler.protocol import JobUnknown, SchedulerUnavailable
    from recovery.optin import OptIn, parse_comment
    from workers.connection import connect
    from workers.schedulers import open_scheduler
    from workers.worker import selection_of
    from workflows.options import recovery_queue

    cluster, job_id = job_reference(job, settings)
    try:
        async with open_scheduler(cluster) as scheduler:
            record = await scheduler.job(job_id)
    except JobUnknown as error:
        raise CliError(f"the scheduler of {cluster.name} does not know job {job_id}", "see squeue") from error
    except SchedulerUnavailable as error:
        raise CliError(f"the scheduler of {cluster.name} gives no answer: {error}", "try again") from error
    optin = parse_comment(record.comment)
    if optin is None and if_opted_in:
        return f"job {cluster.name}/{job_id} did not opt in and is left alone"
    optin = optin or OptIn()
    adopter = Adopter(await connect(settings), recovery_queue(cluster.name), selection_of(cluster))
    if await adopter.adopt(record, optin) is Guard.NOT_YET:
        raise CliError(f"an earlier job {job_id} is still under guard", "try again in a few seconds")
    return f"job {cluster.name}/{job_id} is under guard in mode {optin.mode.value}"


def _answer(text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"answer": text})
    else:
        typer.echo(text)
