"""The metrics that a store is asked for are those that attribution reads."""

from __future__ import annotations

from types import ModuleType

import pytest

from activities.metrics.names import known_names
from recovery.attribution import counted, gauges


@pytest.mark.parametrize("module", [counted, gauges])
def test_whatever_attribution_reads_is_asked_for(module: ModuleType) -> None:
    read = {name for names in vars(module).values() if isinstance(names, frozenset) for name in names}
    assert read
    assert read - known_names().by_series.keys() == set()
