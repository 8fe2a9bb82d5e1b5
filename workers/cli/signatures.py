"""`relight signatures`: the catalogue of messages that relight knows, and a check of a site's own entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json
from workers.cli.output import CliError, console, print_json, print_table

if TYPE_CHECKING:
    from recovery.signatures.catalogue import Catalogue

Extra = Annotated[
    list[Path] | None, typer.Option("--with", help="A site's own catalogue file, in front of the packaged one.")
]

commands = typer.Typer(name="signatures", help="The messages that relight knows.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(commands)


@commands.command("list")
def list_signatures(extra: Extra = None, as_json: Json = False) -> None:
    """List all entries in matching order."""
    catalogue = _catalogue(extra or [])
    if as_json:
        print_json([signature.model_dump(mode="json") for signature in catalogue])
        return
    rows = [(s.id, s.role.value, s.category.value, s.action.value, s.component) for s in catalogue]
    print_table(("ID", "ROLE", "CATEGORY", "ACTION", "COMPONENT"), rows, empty="the catalogue is empty")


@commands.command("test")
def match_line(
    line: Annotated[str, typer.Argument(help="A log line, in quotes.")], extra: Extra = None, as_json: Json = False
) -> None:
    """Say which entry knows a line and what it reads from it. Exit code 1 when none does."""
    from rich.text import Text

    match = _catalogue(extra or []).match(line)
    if match is None:
        raise CliError("no entry knows this line", "add one in a catalogue file of your own and try --with FILE")
    signature = match.signature
    if as_json:
        print_json({"signature": signature.model_dump(mode="json"), "fields": dict(match.fields)})
        return
    out = console()
    out.print(Text(f"{signature.id}: {signature.cause} ({signature.category.value}), a {signature.role.value} line"))
    for name, value in match.fields.items():
        out.print(Text(f"  {name:12}{value}"))
    for name, value in (
        ("culprit", signature.culprit),
        ("action", signature.action.value),
        ("reading", signature.reading),
        ("source", signature.source),
    ):
        if value:
            out.print(Text(f"  {name:12}{value}"))


@commands.command("check")
def check_file(file: Annotated[Path, typer.Argument(help="A catalogue file.")]) -> None:
    """Check a catalogue file. The first mistake is named with its line."""
    from rich.text import Text

    from workers.errors import OperatorError
    from workers.site_signatures import count_entries

    try:
        count = count_entries(file)
    except OperatorError as error:
        raise CliError(error.message, error.hint) from error
    console().print(Text(f"{file}: {count} entries, all good"))


def _catalogue(files: list[Path]) -> Catalogue:
    from workers.errors import OperatorError
    from workers.site_signatures import site_catalogue

    try:
        return site_catalogue(files)
    except OperatorError as error:
        raise CliError(error.message, error.hint) from error
