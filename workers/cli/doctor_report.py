"""What all of the doctor's commands share: which clusters they look at, and how they say what they found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from workers.cli.output import CliError, print_json, print_table

if TYPE_CHECKING:
    from workers.doctor.checks import Check
    from workers.settings import ClusterSettings, Settings


def chosen(settings: Settings, name: str) -> tuple[ClusterSettings, ...]:
    """Return the cluster called `name`, or all where it is empty. Raises `CliError` where there is none."""
    if not settings.clusters:
        raise CliError("no cluster is configured", "add one under `clusters:` in relight.yaml")
    found = tuple(cluster for cluster in settings.clusters if name in ("", cluster.name))
    if not found:
        known = ", ".join(cluster.name for cluster in settings.clusters)
        raise CliError(f"cluster {name!r} is not configured", f"configured: {known}")
    return found


async def examined(
    clusters: Sequence[ClusterSettings], examine: Callable[[ClusterSettings], Awaitable[tuple[Check, ...]]]
) -> dict[str, tuple[Check, ...]]:
    """Return what `examine` finds of each cluster, by its name; all are looked at together."""
    found = await asyncio.gather(*(examine(cluster) for cluster in clusters))
    return {cluster.name: checks for cluster, checks in zip(clusters, found, strict=True)}


def report(titles: Mapping[str, str], found: Mapping[str, Sequence[Check]], *, as_json: bool) -> None:
    """Print the checks of each cluster under its title. Ends the command with exit code 1 when one failed."""
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
