"""`relight doctor metrics` and `relight doctor attribution`: whether what a site has beside Slurm and logs helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from workers.cli.context import Json
from workers.cli.doctor_report import OneCluster, look_at

if TYPE_CHECKING:
    from workers.settings import ClusterSettings


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(metrics)
    app.command()(attribution)


def metrics(context: typer.Context, cluster: OneCluster = "", as_json: Json = False) -> None:
    """Check each cluster's metrics: reach, clock, known series, node labels, age.

    The exit code is 1 when something fails.
    """
    from workers.doctor.metrics import examine

    look_at(context.obj, cluster, examine, _store_of_metrics, as_json=as_json)


def attribution(context: typer.Context, cluster: OneCluster = "", as_json: Json = False) -> None:
    """Check each cluster's attribution service: reach, release, whether it may read the logs.

    Leaves nothing behind. The exit code is 1 when something fails.
    """
    from workers.doctor.attribution import examine

    look_at(context.obj, cluster, examine, _attribution_service, as_json=as_json)


def _store_of_metrics(cluster: ClusterSettings) -> str:
    from activities.stores.access import shown_address

    return shown_address(cluster.metrics.url) if cluster.metrics else "no metrics"


def _attribution_service(cluster: ClusterSettings) -> str:
    from activities.stores.access import shown_address

    return shown_address(cluster.attribution.url) if cluster.attribution else "no attribution service"
