"""Temporal's two servers for tests: the one that skips time, and the real one in its development form."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.testing import WorkflowEnvironment

from workflows.visibility import ALL_KEYS

IDENTITY = "relight-tests"
"""Instead of process and host name, in recorded histories too."""
RELEASE_S = 0.3
"""The SDK's threads still let go of Python objects after a shutdown; the interpreter must not end under them."""

_BESIDE_PYTHON = Path(sys.executable).parent


@functools.cache
def _runtime() -> Runtime:
    """The SDK's core, without its warning about the test server at each worker's start."""
    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=errors)))


@asynccontextmanager
async def skipping_server() -> AsyncIterator[WorkflowEnvironment]:
    """Serve with a clock that jumps over the time in which nothing happens while a result is awaited.

    One per test: an activity that was abandoned stops the clock from jumping for good.
    """
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(_BESIDE_PYTHON / "temporal-test-server"),
        data_converter=pydantic_data_converter,
        identity=IDENTITY,
        runtime=_runtime(),
    )
    async with environment:
        kinds = {key.name: IndexedValueType.ValueType(key.indexed_value_type.value) for key in ALL_KEYS}
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(search_attributes=kinds)
        )
        yield environment


@asynccontextmanager
async def real_server(*, new_run_after_events: int = 4_096) -> AsyncIterator[WorkflowEnvironment]:
    """Serve as in production; continue-as-new is suggested once a history has `new_run_after_events`."""
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(_BESIDE_PYTHON / "temporal"),
        data_converter=pydantic_data_converter,
        identity=IDENTITY,
        runtime=_runtime(),
        search_attributes=ALL_KEYS,
        dev_server_log_level="error",
        dev_server_extra_args=[
            "--dynamic-config-value",
            f"limit.historyCount.suggestContinueAsNew={new_run_after_events}",
        ],
    )
    async with environment:
        yield environment
    await asyncio.sleep(RELEASE_S)
