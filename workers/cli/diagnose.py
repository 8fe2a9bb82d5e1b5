"""`relight diagnose`: read any failed job's logs and say what happened. Needs no server, and no settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json, Options
from workers.cli.output import CliError, console, print_json

if TYPE_CHECKING:
    from activities.casefile import Case
    from recovery.attribution.incident import Incident
    from recovery.model import Evidence, Verdict
    from recovery.signatures.catalogue import Catalogue

_SHOWN_EVIDENCE = 12


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(diagnose)


def diagnose(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Log files or globs, packed or not; - is standard input.", metavar="FILE..."),
    ] = None,
    case: Annotated[Path | None, typer.Option("--case", help="One case of a labelled corpus instead of files.")] = None,
    flight_recorder: Annotated[
        Path | None, typer.Option("--flight-recorder", help="A folder of PyTorch flight-recorder dumps instead.")
    ] = None,
    node_list: Annotated[
        str, typer.Option("--node-list", help="The allocation in Slurm's form (node[01-04]), in rank order.")
    ] = "",
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", help="To map ranks to nodes.", min=0)] = 0,
    state: Annotated[str, typer.Option("--state", help="How Slurm says it ended, such as FAILED or NODE_FAIL.")] = "",
    as_json: Json = False,
) -> None:
    """Say what happened to a job, why, whose fault it is and what to do, from its logs."""
    from recovery.attribution.attribute import attribute
    from recovery.attribution.score import Prediction
    from workers.site_signatures import site_catalogue

    if sum(map(bool, (files, case, flight_recorder))) != 1:
        what = "nothing to read" if not (files or case or flight_recorder) else "more than one kind of input at once"
        raise CliError(what, "give log files, or one --case, or one --flight-recorder folder")
    options: Options = context.obj
    # For what the site masks, too: the report quotes lines.
    settings = options.settings()
    if flight_recorder:
        _diagnose_dumps(flight_recorder, as_json=as_json)
        return
    catalogue = site_catalogue(settings.signatures)
    if case:
        loaded = _case(case)
        verdict = attribute(loaded.incident(str(case)), catalogue)
        if as_json:
            print_json(Prediction.of(loaded.id, verdict))
            return
    else:
        incident, problems = _incident(files or [], catalogue, node_list, gpus_per_node, state.upper())
        verdict = attribute(incident, catalogue).model_copy(update={"blind_to": problems})
        if as_json:
            print_json(verdict)
            return
    print_report(verdict)


def _diagnose_dumps(folder: Path, *, as_json: bool) -> None:
    from rich.text import Text

    from activities.flight_recorder import read_dumps
    from recovery.attribution.flight_recorder import culpable_ranks

    try:
        read = read_dumps(folder)
    except OSError as error:
        raise CliError(f"{folder}: {error.strerror or error}", "give the folder with the dumps") from error
    if not read.dumps:
        raise CliError(f"{folder}: no dump can be read", "; ".join(read.problems[:3]) or "dumps are named ..._rank_0")
    verdict = culpable_ranks(read.dumps)
    if as_json:
        print_json(verdict)
        return
    out = console()
    for finding in verdict.findings:
        out.print(Text(f"rank {finding.rank}: {finding.reason}"))
    if verdict.unlocated_because:
        out.print(Text(f"cannot be located, because {verdict.unlocated_because}"))
    _print_list("not read", read.problems)


def print_report(verdict: Verdict) -> None:
    """Print a verdict as a report that a tired person can act on."""
    from rich.text import Text

    out = console()
    out.print(Text(verdict.summary, style="bold" if out.is_terminal else ""))
    out.print()
    rows = [
        ("what", verdict.symptom.value),
        ("cause", f"{verdict.cause} ({verdict.category.value}, {verdict.confidence.value})"),
        ("culprit", _culprit(verdict)),
        ("do", _advice(verdict)),
    ]
    if verdict.victims and verdict.culprits:
        rows.append(("victims", ", ".join(verdict.victims)))
    for name, value in rows:
        out.print(Text(f"{name:9}{value}"))
    _print_list("evidence", [_quote(evidence) for evidence in verdict.evidence[:_SHOWN_EVIDENCE]])
    _print_list("ruled out", verdict.ruled_out)
    _print_list("not read", verdict.blind_to)


def _print_list(title: str, lines: list[str] | tuple[str, ...]) -> None:
    from rich.text import Text

    if not lines:
        return
    out = console()
    out.print()
    out.print(Text(title))
    for line in lines:
        out.print(Text(f"  {line}"))


def _culprit(verdict: Verdict) -> str:
    if verdict.culprits:
        return ", ".join(verdict.culprits)
    if verdict.unlocated_because:
        return f"cannot be located, because {verdict.unlocated_because}"
    return "no node is at fault"


def _advice(verdict: Verdict) -> str:
    from recovery.model import Action, Category

    advice = {
        Action.RESTART: "restart from the last checkpoint",
        Action.RESTART_EXCLUDE: "restart from the last checkpoint without " + ", ".join(verdict.culprits),
        Action.STOP: "leave it stopped: somebody wanted that"
        if verdict.category is Category.SCHEDULER
        else "do not restart before a person has looked: another try would most likely fail alike",
        Action.WAIT: "wait, then restart: what failed is shared and should come back",
        Action.NONE: "nothing",
    }
    return f"{advice[verdict.suggested]} ({verdict.suggested.value})"


def _quote(evidence: Evidence) -> str:
    where = evidence.source + (f":{evidence.line}" if evidence.line is not None else "")
    host = f" [{evidence.host}]" if evidence.host else ""
    return f"{where}{host} {evidence.text}"


def _case(path: Path) -> Case:
    from activities.casefile import UnreadableInput, read_case

    try:
        return read_case(path)
    except UnreadableInput as error:
        raise CliError(str(error), "a case is one JSON object with id and lines") from error


def _incident(
    files: list[str], catalogue: Catalogue, node_list: str, gpus_per_node: int, state: str
) -> tuple[Incident, tuple[str, ...]]:
    """Read the files; the second is what could not be read of them."""
    from activities.casefile import UnreadableInput
    from activities.logfile import allocation_in, expand_paths, read_log
    from recovery.attribution.incident import Incident, JobFacts

    nodes = _nodes(node_list)
    try:
        read = [read_log(name, catalogue, nodes) for name in expand_paths(files)]
    except UnreadableInput as error:
        raise CliError(str(error), "give readable log files, globs in quotes, or - for standard input") from error
    lines = tuple(line for each in read for line in each.lines)
    problems = tuple(each.problem for each in read if each.problem)
    if not lines:
        what = "; ".join(problems[:3]) or "the files are empty"
        raise CliError(what, "give the job's output files, and its nodes' kernel logs where you can")
    facts = JobFacts(nodes=nodes or allocation_in(lines), gpus_per_node=gpus_per_node, state=state)
    return Incident(lines=lines, facts=facts), problems


def _nodes(node_list: str) -> tuple[str, ...]:
    from activities.scheduler.hostlist import HostlistError, expand

    try:
        return tuple(expand(node_list)) if node_list else ()
    except HostlistError as error:
        raise CliError(f"--node-list: {error}", "write it as Slurm does, such as node[01-04,07]") from error
