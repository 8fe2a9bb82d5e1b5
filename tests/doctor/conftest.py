"""The log stores that the doctor looks at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.servers import KINDS, RunningStore
from tests.stores.skipping import store_or_skip


@pytest.fixture(scope="package", params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[RunningStore]:
    """One store for all tests of a kind; each test has a tenant of its own."""
    with store_or_skip(request.param) as store:
        yield store
