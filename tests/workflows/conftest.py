"""The stage, on either server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.workflows.servers import real_server, skipping_server
from tests.workflows.stage import Stage, real_clock

NEW_RUN_AFTER_EVENTS = 60

_clusters = itertools.count(1)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """An open stage on the server that skips time."""
    async with skipping_server() as server:
        stage = Stage(server.client, "c1", server.get_current_time)
        async with stage.open():
            yield stage
            await stage.close()


@pytest.fixture
async def forgetful_stage() -> AsyncIterator[Stage]:
    """A stage whose worker keeps no workflow in memory: each task replays the whole history."""
    async with real_server() as server:
        stage = Stage(server.client, "c1", real_clock)
        async with stage.open(max_cached_workflows=0):
            yield stage
            await stage.close()


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[WorkflowEnvironment]:
    """The real server, with short runs."""
    async with real_server(new_run_after_events=NEW_RUN_AFTER_EVENTS) as environment:
        yield environment


@pytest.fixture
async def real_stage(server: WorkflowEnvironment) -> AsyncIterator[Stage]:
    """An open stage on the real server, where a run goes on as a new one after `NEW_RUN_AFTER_EVENTS` events."""
    stage = Stage(server.client, f"c{next(_clusters)}", real_clock)
    async with stage.open():
        yield stage
        await stage.close()
