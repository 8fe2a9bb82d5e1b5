"""`relight doctor logs`: whether the lines of jobs reach relight, and where they are lost if not."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json
from workers.cli.doctor_report import OneCluster, look_at
from workers.cli.output import CliError

if TYPE_CHECKING:
    from activities.scheduler.protocol import Scheduler
    from workers.doctor.checks import Check
    from workers.settings import ClusterSettings

_TOKEN = re.compile(r"[A-Za-z0-9_]{8,64}")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(logs)


@dataclass(frozen=True)
class Probing:
    """Which line is looked for, if any."""

    submits: bool
    token: str
    directory: str
    wait_s: float


def logs(
    context: typer.Context,
    cluster: OneCluster = "",
    probe: Annotated[
        bool, typer.Option("--probe", help="Also submit a tiny job that prints a marked line, and wait for the line.")
    ] = False,
    line: Annotated[
        str,
        typer.Option("--line", metavar="TOKEN", help="Wait for a line with this word, printed by a job of yours."),
    ] = "",
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where the probe writes its output; else: here.")
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0, max=900, help="How long to wait for the line, in seconds.")
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Check each place where jobs' lines are read: reach, rights, tenant, labels, age, clocks.

    Changes nothing without --probe. The exit code is 1 when something fails.
    """
    if line and probe:
        raise CliError("--probe and --line are two ways to the same", "give one of them")
    if line and not _TOKEN.fullmatch(line):
        raise CliError(f"{line!r} can't be looked for", "--line takes 8 to 64 letters, digits and underscores")
    probing = Probing(probe, line, str(directory or Path.cwd()), wait_s)
    look_at(context.obj, cluster, partial(_examine, probing=probing), _title, as_json=as_json)


def _title(cluster: ClusterSettings) -> str:
    return f"logs in {_places(cluster)}"


def _places(cluster: ClusterSettings) -> str:
    return ", ".join(place.called for place in cluster.logs)


async def _examine(cluster: ClusterSettings, probing: Probing) -> tuple[Check, ...]:
    from activities.scheduler.protocol import JobState, SchedulerError
    from workers.doctor.checks import unknown
    from workers.doctor.logs import examine
    from workers.schedulers import open_scheduler

    async with open_scheduler(cluster) as scheduler:
        try:
            reading = await scheduler.jobs()
        except SchedulerError as error:
            silent = unknown("running jobs", str(error), "see `relight doctor slurm`")
            checks = (silent, *await examine(cluster, (), scheduler))
        else:
            running = [job for job in reading.jobs if job.state is JobState.RUNNING]
            checks = await examine(cluster, running, scheduler)
        return checks + await _probed(cluster, scheduler, probing)


async def _probed(cluster: ClusterSettings, scheduler: Scheduler, probing: Probing) -> tuple[Check, ...]:
    from workers.doctor.logs import await_line, probe
    from workers.doctor.logs_probe import Mark

    if probing.submits:
        token = f"probe_{secrets.token_hex(8)}"
        typer.echo(
            f"waiting up to {probing.wait_s:.0f} s for a job's line with {token} in {_places(cluster)}", err=True
        )
        found = probe(cluster, scheduler, Mark(token, probing.wait_s), probing.directory)
        return tuple([check async for check in found])
    if probing.token:
        typer.echo(
            f"waiting up to {probing.wait_s:.0f} s for a line with {probing.token} in {_places(cluster)}", err=True
        )
        return await await_line(cluster, Mark(probing.token, probing.wait_s))
    return ()
