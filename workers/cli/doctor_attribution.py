"""`relight doctor attribution`: whether the site's attribution service answers, and sees what it is to read."""

from __future__ import annotations

from typing import Annotated

import typer

from workers.cli.context import Json, Options, run
from workers.cli.doctor_report import chosen, examined, report


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(attribution)


def attribution(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster.")] = "",
    as_json: Json = False,
) -> None:
    """Check each cluster's attribution service: reach, release, whether it may read the logs.

    Leaves nothing behind. The exit code is 1 when something fails.
    """
    from workers.doctor.attribution import examine

    options: Options = context.obj
    clusters = chosen(options.settings(), cluster)
    found = run(examined(clusters, examine))
    titles = {each.name: each.attribution.url if each.attribution else "no attribution service" for each in clusters}
    report(titles, found, as_json=as_json)
