"""A store for tests, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.stores.servers import NoStore, RunningStore, running_store


@contextmanager
def store_or_skip(kind: str) -> Iterator[RunningStore]:
    """Run a store of `kind` while the context is open; skip the test where this machine has none."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(running_store(kind))
        except NoStore as missing:
            pytest.skip(str(missing))
        yield store
