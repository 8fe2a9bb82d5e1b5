"""What a benchmark comes to: figures, each with what it is held against, printed in aligned columns."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value. `target` is the most that it should be; None where the value only informs."""

    name: str
    value: float
    unit: str
    target: float | None = None
    beside: str = ""
    """What else it is to be read against: a baseline, a range, how it came about."""

    @property
    def met(self) -> bool | None:
        """Whether the value keeps to its target; None without one."""
        return None if self.target is None else self.value <= self.target


@dataclass(frozen=True)
class Report:
    """The figures of one benchmark, and under what circumstances they were measured."""

    benchmark: str
    measured: str
    """What was measured and how, in a line or two."""
    figures: tuple[Figure, ...] = ()
    skipped: str = ""
    """Why there are no figures."""


def machine() -> str:
    """Describe where the figures come from."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of `values` that `percent` of them don't exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def spread(
    name: str, values: Sequence[float], *, median_target: float | None = None, p95_target: float | None = None
) -> list[Figure]:
    """Return median and 95th percentile of `values`, which are seconds."""
    among = f"{len(values)} measured, {min(values):.2f} to {max(values):.2f} s"
    return [
        Figure(f"{name}, median", statistics.median(values), "s", median_target, among),
        Figure(f"{name}, p95", percentile(values, 95), "s", p95_target),
    ]


def as_text(report: Report) -> str:
    """Return the report for people."""
    lines = [f"{report.benchmark}: {report.measured}"]
    if report.skipped:
        return "\n".join([*lines, f"  skipped: {report.skipped}"])
    name_width = max(len(figure.name) for figure in report.figures)
    unit_width = max(len(figure.unit) for figure in report.figures)
    for figure in report.figures:
        row = (
            f"  {figure.name:{name_width}}  {_plain(figure.value):>9} {figure.unit:{unit_width}}  {_target(figure):22}"
        )
        lines.append(f"{row}  {figure.beside}".rstrip())
    return "\n".join(lines)


def as_json(reports: Sequence[Report]) -> str:
    """Return all reports as one JSON object."""
    told = [
        asdict(report) | {"figures": [asdict(figure) | {"met": figure.met} for figure in report.figures]}
        for report in reports
    ]
    return json.dumps({"machine": machine(), "reports": told}, indent=2)


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"target {figure.target:g} {'met' if figure.met else 'MISSED'}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == int(value) else f"{value:.3g}"
