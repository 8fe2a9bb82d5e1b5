"""How every command speaks: one JSON document or aligned text on stdout, one line and a hint on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workers.errors import OperatorError

if TYPE_CHECKING:
    from rich.console import Console


class CliError(OperatorError):
    """Ends a command with exit code `code`: `message` says what happened and to what, `hint` what to do next."""

    def __init__(self, message: str, hint: str = "", *, code: int = 1) -> None:
        super().__init__(message, hint)
        self.code = code


def console(*, stderr: bool = False) -> Console:
    """Return a rich console: coloured on a terminal only, never breaking words of piped output."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, soft_wrap=not terminal)


def print_json(document: Any) -> None:
    """Print `document` as one JSON text; pydantic models are dumped in their JSON form."""
    sys.stdout.write(json.dumps(document, default=_jsonable, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Print aligned columns without rules; `empty` is the sentence for no rows. Cell text is shown as it is: markup in
    it does nothing."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    if not rows:
        out.print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def report_error(error: OperatorError) -> None:
    """Print an error as one line and, where there is one, a hint."""
    from rich.text import Text

    err = console(stderr=True)
    err.print(Text.assemble(("error: ", "bold red" if err.is_terminal else ""), error.message))
    if error.hint:
        err.print(Text.assemble(("hint:  ", "bold" if err.is_terminal else ""), error.hint))


def _jsonable(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
