"""`relight doctor slurm`: what relight needs of each cluster, looked at through the transport that it will use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json, Options, run
from workers.cli.doctor_report import chosen, examined, report

if TYPE_CHECKING:
    from workers.doctor.checks import Check
    from workers.settings import ClusterSettings


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(slurm)


def slurm(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster.")] = "",
    probe: Annotated[
        bool, typer.Option("--probe", help="Also submit a tiny job, requeue it with an exclusion, and cancel it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check each cluster: reach, rights, versions, configuration.

    Changes nothing without --probe. The exit code is 1 when something fails.
    """
    options: Options = context.obj
    clusters = chosen(options.settings(), cluster)
    found = run(examined(clusters, partial(_examine, probing=probe)))
    titles = {each.name: f"scheduler {each.scheduler.kind}, mode {each.effective_mode.value}" for each in clusters}
    report(titles, found, as_json=as_json)


async def _examine(cluster: ClusterSettings, *, probing: bool) -> tuple[Check, ...]:
    from workers.doctor.checks import Finding
    from workers.doctor.slurm import examine
    from workers.doctor.slurm_probe import probe
    from workers.schedulers import open_scheduler

    async with open_scheduler(cluster) as scheduler:
        checks = await examine(cluster, scheduler)
        if probing and checks[0].finding is not Finding.FAILED:
            checks += tuple([check async for check in probe(scheduler)])
    return checks
