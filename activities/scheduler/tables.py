"""Rows of the tables that Slurm's commands print with ``--parsable2`` and ``--delimiter``, or squeue and sinfo with a
separator in their format.

Slurm escapes nothing: a comment may hold the separator, and line breaks of its own. A row is whole once it has all its
separators, so that a line break inside a value is put back; a row that can't be put together is counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

MAX_COLUMNS = 500


class TableError(ValueError):
    """The text is not such a table at all."""


class Table(NamedTuple):
    """A table that was read."""

    rows: tuple[Mapping[str, str], ...]
    """By column name, blanks around a value taken off."""
    unreadable: int
    """How many lines belong to no row."""


def read_table(text: str, delimiter: str, columns: Sequence[str] = ()) -> Table:
    """Return the rows of `text`. Without `columns` the first line names them; of a name that comes twice the first
    column counts. Blank lines between rows are no rows. Linear in the text's length.

    Raises `TableError` for a first line that names no columns, or too many.
    """
    lines = iter(text.split("\n"))
    names = list(columns) or _named(next(lines, ""), delimiter)
    rows, unreadable = [], 0
    for row in _put_together(lines, delimiter, len(names)):
        if isinstance(row, int):
            unreadable += row
        else:
            rows.append({name: value.strip() for name, value in zip(reversed(names), reversed(row), strict=True)})
    return Table(rows=tuple(rows), unreadable=unreadable)


def _named(line: str, delimiter: str) -> list[str]:
    names = [name.strip() for name in line.split(delimiter)]
    if len(names) > MAX_COLUMNS or not any(names):
        raise TableError(f"the first line names no columns: {line[:80]!r}")
    return names


def _put_together(lines: Iterable[str], delimiter: str, width: int) -> Iterator[list[str] | int]:
    """Yield whole rows, and for lines that belong to none their number."""
    pending: list[str] = []
    seen = 0
    for line in lines:
        if not line.strip() and not pending:
            continue
        here = line.count(delimiter)
        if seen + here == width and line.endswith(delimiter):
            # --parsable puts a separator behind the last value too.
            line, here = line.removesuffix(delimiter), here - 1
        if seen + here > width - 1:
            # What is pending was cut off: this line may be the first of a whole row.
            if pending:
                yield len(pending)
            pending, seen = [], 0
        if here > width - 1:
            yield 1
            continue
        pending.append(line)
        seen += here
        if seen == width - 1:
            yield "\n".join(pending).split(delimiter)
            pending, seen = [], 0
    yield sum(1 for line in pending if line.strip())
