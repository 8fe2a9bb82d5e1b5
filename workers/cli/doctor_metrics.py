"""`relight doctor metrics`: whether the store of metrics gives what attribution can use, and what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from workers.cli.context import Json, Options, run
from workers.cli.doctor_report import chosen, examined, report


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(metrics)


def metrics(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster.")] = "",
    as_json: Json = False,
) -> None:
    """Check each cluster's metrics: reach, clock, known series, node labels, age.

    The exit code is 1 when something fails.
    """
    from workers.doctor.metrics import examine

    options: Options = context.obj
    clusters = chosen(options.settings(), cluster)
    found = run(examined(clusters, examine))
    titles = {each.name: each.metrics.url if each.metrics else "no metrics" for each in clusters}
    report(titles, found, as_json=as_json)
