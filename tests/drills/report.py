"""What came of the drills, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tests.drills.drill import DrillResult

_COLUMNS = ("outage", "jobs", "lasted s", "blind after s", "acts", "seen after s", "shown after s", "lines lost")


def table(results: Sequence[DrillResult]) -> str:
    """Return the figures in aligned columns, a line each, and below them what was broken."""
    rows = [_COLUMNS, *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [_line(row, widths) for row in rows]
    broken = [f"{result.outage}: {violation}" for result in results for violation in result.violations]
    return "\n".join([*lines, *(["", *broken] if broken else [])])


def _cells(result: DrillResult) -> tuple[str, ...]:
    return (
        result.outage,
        str(result.jobs),
        f"{result.lasted_s:.0f}",
        _seconds(result.blind_after_s),
        str(result.acts),
        _seconds(result.seen_after_s),
        _seconds(result.shown_after_s),
        str(result.lines_lost),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    figures = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
    return "  ".join((first.ljust(widths[0]), *figures))
