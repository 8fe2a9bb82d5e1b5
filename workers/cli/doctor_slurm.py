"""`relight doctor slurm`: what relight needs of each cluster, looked at through the transport that it will use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json
from workers.cli.doctor_report import OneCluster, look_at

if TYPE_CHECKING:
    from workers.doctor.checks import Check
    from workers.settings import ClusterSettings


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(slurm)


def slurm(
    context: typer.Context,
    cluster: OneCluster = "",
    probe: Annotated[
        bool, typer.Option("--probe", help="Also submit a tiny job, requeue it with an exclusion, and cancel it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check each cluster: reach, rights, versions, configuration.

    Changes nothing without --probe. The exit code is 1 when something fails.
    """
    look_at(context.obj, cluster, partial(_examine, probing=probe), _title, as_json=as_json)


def _title(cluster: ClusterSettings) -> str:
    return f"scheduler {cluster.scheduler.kind}, mode {cluster.effective_mode.value}"


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
