"""A job under watch, and a watch whose beat is fast enough for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from activities import watch
from activities.findings import WatchOrder
from activities.logs import attempt
from tests.watch.scripted import JobUnderWatch, Watch

StartWatch = Callable[..., Watch]


@pytest.fixture(autouse=True)
def fast_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(watch, "LOG_POLL_S", 0.02)
    monkeypatch.setattr(attempt, "DRAIN_S", 0.1)


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[JobUnderWatch]:
    async with JobUnderWatch(tmp_path).open() as job:
        yield job


@pytest.fixture
async def start(job: JobUnderWatch) -> AsyncIterator[StartWatch]:
    """Starts watches of the job and ends those that still run."""
    watches: list[Watch] = []

    def starts(order: WatchOrder | None = None, **how: Any) -> Watch:
        watches.append(Watch(job, order or job.order(), **how))
        return watches[-1]

    yield starts
    for each in watches:
        await each.stop()
