"""`relight demo`: four training jobs on a simulated cluster, three of which fail, each in its own way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workers.cli.context import Json, run
from workers.cli.output import print_json


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(demo)


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where the demonstration keeps its files; emptied at its start.")
    ] = Path(".relight/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the servers at the end, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See a training job hit a bad node and come back.

    Nothing needs to be installed for it. Starts Temporal, PostgreSQL, a simulated 8-node cluster and the worker. Exit
    code 0 only if every job ended as it should.
    """
    from workers.demo.run import run_demo

    report = run(run_demo(directory, keep=keep, quiet=as_json))
    if as_json:
        print_json(report)
    raise typer.Exit(0 if report.passed else 1)
