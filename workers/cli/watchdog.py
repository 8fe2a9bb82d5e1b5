"""`relight watchdog`: releases what relight left held, whatever else is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json, Options, run
from workers.cli.output import CliError, console, print_json, print_table

if TYPE_CHECKING:
    from activities.scheduler.rounds import Round
    from workers.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(watchdog)


def watchdog(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Look once, print what was seen and done, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Release holds that relight left behind.

    Needs the scheduler only: no Temporal, no PostgreSQL, no worker. Observes until watchdog.mode is act and
    watchdog.acknowledge_scheduler_actions is set for the cluster. Runs until Ctrl-C.
    """
    options: Options = context.obj
    settings = options.settings()
    if not settings.clusters:
        raise CliError("no cluster is configured", "name one under clusters: in relight.yaml")
    if not once:
        if as_json:
            raise CliError("--json goes with --once", "a running watchdog tells what it does in its log")
        run(_until_signal(settings, debug=options.debug))
        return
    rounds = run(_once(settings, debug=options.debug))
    if as_json:
        print_json(rounds)
    else:
        _print(rounds)


async def _once(settings: Settings, *, debug: bool) -> tuple[Round, ...]:
    from workers.logs import set_up_logging
    from workers.watchdog import look_once

    set_up_logging(debug=debug)
    return await look_once(settings)


async def _until_signal(settings: Settings, *, debug: bool) -> None:
    import asyncio
    from contextlib import suppress

    from workers.cli.serving import until_signal
    from workers.logs import set_up_logging
    from workers.watchdog import keep_looking

    set_up_logging(debug=debug)
    looking = asyncio.create_task(keep_looking(settings))
    stopping = asyncio.create_task(until_signal())
    await asyncio.wait((looking, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking


def _print(rounds: tuple[Round, ...]) -> None:
    rows = [
        [
            f"{seen.cluster}/{seen.job_id}",
            "" if seen.held_for_s is None else f"{seen.held_for_s:.0f} s",
            seen.outcome.value.replace("_", " "),
            seen.reason,
        ]
        for look in rounds
        for seen in look.seen
    ]
    answered = any(not look.silence for look in rounds)
    if rows or answered:
        print_table(("JOB", "HELD FOR", "OUTCOME", "WHY"), rows, empty="no job waits because of relight")
    for look in rounds:
        if look.silence:
            console().print(f"{look.cluster}: no answer, nothing done: {look.silence}", markup=False)
