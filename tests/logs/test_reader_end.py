"""The reader of a log store ends when it is told to."""

from __future__ import annotations

import asyncio

import pytest

from activities.logs.protocol import StorePosition
from activities.logs.stores.settings import VictoriaLogsSettings
from activities.logs.stores.source import StoreLogs
from benchmarks.log_crowd import CannedStore


@pytest.mark.parametrize("steps", range(6))
async def test_it_ends_though_it_is_just_being_woken(steps: int) -> None:
    settings = VictoriaLogsSettings(kind="victorialogs", url="http://127.0.0.1")
    logs = StoreLogs(CannedStore(settings), settings)
    logs.reader.follow("1", StorePosition(begin_ns=0, since_ns=0))
    await asyncio.sleep(0.8)  # it has looked, and rests
    logs.reader.follow("2", StorePosition(begin_ns=0, since_ns=0))
    for _ in range(steps):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await logs.close()
