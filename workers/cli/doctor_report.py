"""What all of the doctor's commands share: which clusters they look at, and how they say what they found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Options, run
from workers.cli.output import CliError, print_json, print_table

if TYPE_CHECKING:
    from workers.doctor.checks import Check
    from workers.settings import ClusterSettings, Settings


OneCluster = Annotated[str, typer.Option("--cluster", help="Only this cluster.")]


def look_at(
    options: Options,
    name: str,
    examine: Callable[[ClusterSettings], Awaitable[tuple[Check, ...]]],
    title: Callable[[ClusterSettings], str],
    *,
    as_json: bool,
) -> None:
    """Print what `examine` finds of the cluster called `name`, or of all where it is empty, each under its title. Ends
    the command with exit code 1 when a check failed."""
    clusters = _chosen(options.settings(), name)
    found = run(_examined(clusters, examine))
    _report({each.name: title(each) for each in clusters}, found, as_json=as_json)


def _chosen(settings: Settings, name: str) -> tuple[ClusterSettings, ...]:
    """The clusters that are meant. Raises `CliError` where there is none."""
    if not settings.clusters:
        raise CliError("no cluster is configured", "add one under `clusters:` in relight.yaml")
    found = tuple(cluster for cluster in settings.clusters if name in ("", cluster.name))
    if not found:
        known = ", ".join(cluster.name for cluster in settings.clusters)
        raise CliError(f"cluster {name!r} is not configured", f"configured: {known}")
    return found


async def _examined(
    clusters: Sequence[ClusterSettings], examine: Callable[[ClusterSettings], Awaitable[tuple[Check, ...]]]
) -> dict[str, tuple[Check, ...]]:
    """What is found of each cluster, by its name; all are looked at together."""
    found = await asyncio.gather(*(examine(cluster) for cluster in clusters))
    return {cluster.name: checks for cluster, checks in zip(clusters, found, strict=True)}


def _report(titles: Mapping[str, str], found: Mapping[str, Sequence[Check]], *, as_json: bool) -> None:
    from workers.doctor.checks import Finding

    if as_json:
        print_json({"clusters": found})
    else:
        for cluster, checks in found.items():
            typer.echo(f"cluster {cluster}, {titles[cluster]}")
            rows = [row for check in checks for row in _rows(check)]
            print_table(("CHECK", "FINDING", "WHAT"), rows, empty="nothing was looked at")
    if any(check.finding is Finding.FAILED for checks in found.values() for check in checks):
        raise typer.Exit(1)


def _rows(check: Check) -> list[tuple[str, str, str]]:
    """What to do has a row of its own, where there is room for it."""
    rows = [(check.name, check.finding.value, check.says)]
    return rows + ([("", "to do", check.remedy)] if check.remedy else [])
