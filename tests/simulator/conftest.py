from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulator.running import RunningSimulator, running_simulator


@pytest.fixture
async def simulator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningSimulator]:
    # Not tmp_path: with the test's name in it, the socket's path grows too long.
    directory: Path = tmp_path_factory.mktemp("sim")
    async with running_simulator(directory, "--min-job-age-s", "3") as running:
        yield running
