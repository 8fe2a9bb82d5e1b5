"""Drills under a few jobs, as tests have them; ``make drills`` has all outages under 200."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.drills.__main__ import drill
from tests.drills.drill import DrillResult
from tests.drills.outages import OUTAGES
from tests.drills.report import table

DRILLED = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(400)]
"""What marks a test that drills."""
JOBS = 6
HANG_AFTER_S = 10.0
"""Longer than a busy machine may keep all of a test waiting."""


async def drilled(names: Sequence[str], jobs: int = JOBS) -> list[DrillResult]:
    """Drill the outages of these names, in the table's order, and return what came of each."""
    outages = [outage for outage in OUTAGES if outage.name in names]
    assert len(outages) == len(names)
    return [result async for result in drill(outages, jobs=jobs, hang_after_s=HANG_AFTER_S)]


def assert_unbroken(results: Sequence[DrillResult]) -> None:
    """Show the whole table where something was broken."""
    assert not [result for result in results if result.violations], f"\n{table(results)}"
