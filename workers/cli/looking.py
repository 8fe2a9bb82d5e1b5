"""`relight status` and `relight show`: what the service sees and does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workers.cli.context import Json, Options, job_reference, run
from workers.cli.output import CliError, console, print_json, print_table

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription

    from recovery.governor import GovernorSettings
    from recovery.policy import PolicySettings
    from workers.settings import Settings
    from workflows.cluster_state import ClusterStanding
    from workflows.state import RecoveryState

STANDING_TIMEOUT = timedelta(seconds=3)
WATCH = "watch_attempt"
"""The type of the activity that reads a job's lines."""


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(status)
    app.command()(show)


def status(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that relight no longer looks after.")] = False,
    as_json: Json = False,
) -> None:
    """List the jobs under guard, and how each cluster stands."""
    options: Options = context.obj
    settings = options.settings()
    standings, rows = run(_overview(settings, everything=everything))
    if as_json:
        print_json({"clusters": standings, "jobs": rows})
        return
    for cluster in settings.clusters:
        typer.echo(f"cluster {cluster.name}: {in_words(standings[cluster.name], cluster.governor)}")
        standing = standings[cluster.name]
        for each in (*sources_in_words(standing), *suspects_in_words(standing, cluster.policy)):
            typer.echo(f"cluster {cluster.name}: {each}")
        if told := blind_in_words(rows, cluster.name):
            typer.echo(f"cluster {cluster.name}: {told}")
    columns = ("JOB", "NAME", "PHASE", "MODE", "ATTEMPT", "FAILURE", "EXCLUDED", "BLIND")
    cells = [[*(str(row[column.lower()]) for column in columns[:-1]), row["blind_since"]] for row in rows]
    print_table(columns, cells, empty="no job is under guard: a job opts in with --comment='{\"relight\":{}}'")


def show(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="Slurm job id, or cluster/id.")],
    as_json: Json = False,
) -> None:
    """Show one job: verdict, advice, outcome, timeline."""
    options: Options = context.obj
    settings = options.settings()
    cluster, job_id = job_reference(job, settings)
    state, reads = run(_state(settings, f"recovery/{cluster.name}/{job_id}", job))
    if as_json:
        print_json({**state.model_dump(mode="json"), "reads": reads})
    else:
        print_state(f"{cluster.name}/{job_id}", state, reads)


def print_state(title: str, state: RecoveryState, reads: Sequence[str]) -> None:
    """Print a job's state and timeline for a person; `reads`: where its lines are read."""
    from rich.text import Text

    out = console()
    heading = f"job {title}  {state.closed or state.phase.value.replace('_', ' ')}, attempt {state.attempt}"
    out.print(Text(heading, style="bold" if out.is_terminal else ""))
    facts = [
        ("verdict", state.verdict.summary or state.verdict.cause if state.verdict else ""),
        ("culprits", ", ".join(state.verdict.culprits) if state.verdict else ""),
        ("blind to", "; ".join(state.verdict.blind_to) if state.verdict else ""),
        ("advice", f"{state.advice.action.value}: {state.advice.reason}" if state.advice else ""),
        (
            "outcome",
            f"{state.reconciliation.disposition.value}: {state.reconciliation.reason}" if state.reconciliation else "",
        ),
        ("excluded", ", ".join(exclusion.node for exclusion in state.exclusions)),
        ("chain", f"dependents {state.stranded} can never start" if state.stranded.count else ""),
        ("governor", f"keeps this back: {state.kept_back.says}" if state.kept_back else ""),
        ("gaps", f"{state.lost_lines} lines of this attempt were lost on their way" if state.lost_lines else ""),
        ("blind", f"since {state.blind_since:%H:%M:%S}: {state.blind_because}" if state.blind_since else ""),
        *(("reads", source) for source in reads),
    ]
    for name, value in facts:
        if value:
            out.print(Text(f"  {name:9} {value}"))
    for evidence in state.verdict.evidence[:6] if state.verdict else ():
        where = f"{evidence.source}:{evidence.line}" if evidence.line else evidence.source
        out.print(Text(f"  evidence  {where}: {evidence.text}"))
    out.print()
    rows = [
        [f"{entry.at:%H:%M:%S}", entry.kind, f"{entry.text} (by {entry.who})" if entry.who else entry.text]
        for entry in state.timeline
    ]
    print_table(("TIME", "EVENT", "WHAT"), rows, empty="nothing happened yet")


def in_words(standing: ClusterStanding | None, limits: GovernorSettings) -> str:
    """Return in one line whether relight acts on a cluster, and how much it did lately."""
    if standing is None:
        return "unknown, no worker answers"
    window_min = limits.window_s / 60
    counts = (
        f"{standing.restarts} of {limits.restarts} restarts in the last {window_min:.3g} min,"
        f" {standing.excluded_nodes} nodes excluded"
    )
    if standing.refused:
        return f"mode act is refused, only observed: {standing.refused}"
    if standing.pause is not None:
        return f"{standing.pause.says}, since {standing.pause.since:%Y-%m-%d %H:%M:%S} UTC; {counts}"
    if standing.tripped is not None:
        return f"the governor keeps acts back: {standing.tripped.says}; {counts}"
    return counts


def sources_in_words(standing: ClusterStanding | None) -> list[str]:
    """Return a line for each of a cluster's sources that can't be seen."""
    return [each.says for each in standing.blind] if standing is not None else []


def suspects_in_words(standing: ClusterStanding | None, policy: PolicySettings) -> list[str]:
    """Return a line for each node of a cluster that several jobs point at."""
    from recovery.suspects import suspects

    if standing is None:
        return []
    return [suspect.says for suspect in suspects(standing.suspicions, policy.suspects, datetime.now(UTC))]


def blind_in_words(rows: Sequence[Mapping[str, Any]], cluster: str) -> str:
    """Return in one line how many of a cluster's jobs can't be seen, and since when; empty where all can."""
    mine = [row["blind_since"] for row in rows if str(row["job"]).startswith(f"{cluster}/")]
    blind = [since for since in mine if since]
    return f"{len(blind)} of {len(mine)} jobs blind, the first since {min(blind)}" if blind else ""


async def _overview(
    settings: Settings, *, everything: bool
) -> tuple[dict[str, ClusterStanding | None], list[dict[str, Any]]]:
    from workers.connection import connect

    client = await connect(settings)
    standings = {cluster.name: await _standing(client, cluster.name) for cluster in settings.clusters}
    return standings, await _rows(client, everything=everything)


async def _standing(client: Client, cluster: str) -> ClusterStanding | None:
    """How the cluster stands; None where nobody can say."""
    from temporalio.client import WorkflowQueryFailedError
    from temporalio.service import RPCError

    from activities.governor import cluster_workflow_id
    from workflows.cluster import ClusterWatch

    handle = client.get_workflow_handle_for(ClusterWatch.run, cluster_workflow_id(cluster))
    try:
        return await handle.query(ClusterWatch.standing, rpc_timeout=STANDING_TIMEOUT)
    except (RPCError, WorkflowQueryFailedError):
        return None


async def _rows(client: Client, *, everything: bool) -> list[dict[str, Any]]:
    from activities.adopt import CLOSED_PHASE

    query = 'WorkflowType = "JobRecovery"' + ("" if everything else ' AND ExecutionStatus = "Running"')
    rows = [await _row(execution) async for execution in client.list_workflows(query, limit=1_000)]
    # A workflow may stay for a while after the guard's end, to put what is under way on record.
    return [row for row in rows if everything or row["phase"] != CLOSED_PHASE]


async def _row(execution: WorkflowExecution) -> dict[str, Any]:
    from activities.adopt import PHASE
    from workflows import visibility

    found = execution.typed_search_attributes
    return {
        "job": execution.id.removeprefix("recovery/"),
        "name": await execution.memo_value("name", default=""),
        "phase": found.get(PHASE) or "",
        "mode": found.get(visibility.MODE) or "",
        "attempt": found.get(visibility.RESTARTS) or 0,
        "failure": found.get(visibility.CATEGORY) or "",
        "excluded": ", ".join(found.get(visibility.EXCLUDED_NODES) or ()),
        "blind_since": found.get(visibility.BLIND_SINCE) or "",
    }


async def _state(settings: Settings, workflow_id: str, job: str) -> tuple[RecoveryState, tuple[str, ...]]:
    """What the job's workflow remembers, and where its lines are read."""
    from temporalio.service import RPCError, RPCStatusCode

    from workers.connection import connect
    from workflows.job import JobRecovery

    client = await connect(settings)
    handle = client.get_workflow_handle_for(JobRecovery.run, workflow_id)
    try:
        state = await handle.query(JobRecovery.state)
        return state, await _reads(await handle.describe(), state)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise CliError(
                f"job {job} is not under guard", "see `relight status --all`, or `relight watch JOB`"
            ) from error
        raise CliError(
            f"job {job} can't be asked: {error.message[:200]}", "is a worker running? try `relight up`"
        ) from error


async def _reads(job: WorkflowExecutionDescription, state: RecoveryState) -> tuple[str, ...]:
    """The sources that the watch under way reads, by its last heartbeat; without one, those of its last report."""
    from pydantic import ValidationError

    from activities.attempt_watch import WatchMemory

    cursors = state.logs
    for pending in job.raw_description.pending_activities:
        if pending.activity_type.name == WATCH and pending.heartbeat_details.payloads:
            [beat] = await job.data_converter.decode(pending.heartbeat_details.payloads[:1])
            try:
                cursors = WatchMemory.model_validate(beat).logs
            except ValidationError:
                # A worker of another version wrote it.
                continue
    return tuple(cursor.source for cursor in cursors)
