"""The `relight` command: its options, its commands, and how errors end it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from workers.cli import demonstrating, diagnose, doctor, evaluate, looking, ordering, serving, signatures, watchdog
from workers.cli.context import Options
from workers.cli.output import report_error
from workers.errors import OperatorError

app = typer.Typer(
    name="relight",
    help="Brings Slurm training jobs back: detects, attributes, isolates, requeues. Observe mode by default.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings file; else RELIGHT_CONFIG, else ./relight.yaml.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log more, and show tracebacks.")] = False,
) -> None:
    """Keep the options that all commands share."""
    context.obj = Options(config=config, debug=debug)


for module in (demonstrating, serving, looking, ordering, diagnose, evaluate, signatures, watchdog, doctor):
    module.add_to(app)


def main() -> None:
    """Run the command line: one line and a hint for what the caller can mend, exit 130 after Ctrl-C."""
    _leave(run_command(sys.argv[1:] or ["--help"]))


def run_command(words: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        # Typer returns the code of `typer.Exit` and of Ctrl-C, and None where a command just ended.
        code = app(words, prog_name="relight", standalone_mode=False)
    except OperatorError as error:
        if "--debug" in words:
            raise
        report_error(error)
        return int(getattr(error, "code", 1))
    except TyperException as error:
        report_error(OperatorError(error.format_message(), _usage_hint(words)))
        return error.exit_code
    except typer.Abort:
        return 130
    return code if isinstance(code, int) else 0


def _leave(code: int) -> NoReturn:
    """End the process without Python's own tear-down where Temporal's client was used.

    Its threads may still call into the interpreter, and while that finishes the process aborts: 15 of 30 short commands
    did (github.com/temporalio/sdk-python/issues/300, open since 2023).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if "temporalio.bridge.temporal_sdk_bridge" in sys.modules:
        os._exit(code)
    sys.exit(code)


def _usage_hint(words: list[str]) -> str:
    if any(word.startswith(("--config", "--debug")) for word in words):
        return "--config and --debug come before the command: relight --config FILE COMMAND"
    return "see relight --help"
