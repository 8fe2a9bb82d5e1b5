"""`relight up` and `relight worker`: the processes that do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from workers.cli.context import Options, run

if TYPE_CHECKING:
    from workers.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(up)
    app.command()(worker)


def up(context: typer.Context) -> None:
    """Run the worker with its own Temporal and PostgreSQL.

    Everything stays until Ctrl-C; its state is kept across restarts in state_dir of relight.yaml.
    """
    options: Options = context.obj
    run(_up(options.settings(), debug=options.debug))


def worker(context: typer.Context) -> None:
    """Run the worker on the site's Temporal and PostgreSQL."""
    options: Options = context.obj
    run(_worker(options.settings(), debug=options.debug))


async def _up(settings: Settings, *, debug: bool) -> None:
    from workers.cli.output import console
    from workers.connection import connect
    from workers.embedded.ownership import owned
    from workers.embedded.postgres import EmbeddedPostgres
    from workers.embedded.temporal import EmbeddedTemporal
    from workers.logs import set_up_logging
    from workers.worker import require_clusters, running_worker, search_attributes

    require_clusters(settings)
    set_up_logging(debug=debug)
    out = console(stderr=True)
    embedded = settings.embedded
    temporal = EmbeddedTemporal(
        settings.state_dir / "temporal",
        port=embedded.temporal_port,
        ui_port=embedded.temporal_ui_port,
        namespace=settings.temporal.namespace or "default",
        search_attributes=search_attributes(),
    )
    postgres = EmbeddedPostgres(settings.state_dir / "postgres", port=embedded.postgres_port)
    with owned(settings.state_dir):
        out.print("starting Temporal and PostgreSQL ...")
        async with temporal, postgres:
            client = await connect(settings, address=temporal.address)
            dsn = settings.audit.dsn.get_secret_value() or postgres.dsn
            async with running_worker(client, settings, dsn):
                out.print(f"Temporal Web UI: {temporal.ui_url}")
                out.print(f"watching {', '.join(cluster.name for cluster in settings.clusters)}; Ctrl-C ends it")
                await until_signal()


async def _worker(settings: Settings, *, debug: bool) -> None:
    from workers.connection import connect
    from workers.logs import set_up_logging
    from workers.worker import running_worker

    set_up_logging(debug=debug)
    client = await connect(settings)
    async with running_worker(client, settings, settings.audit.dsn.get_secret_value()):
        await until_signal()


async def until_signal() -> None:
    """Wait for SIGINT or SIGTERM: both end the process in good order."""
    import asyncio
    import signal

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
