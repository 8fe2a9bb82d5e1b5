"""Heartbeats of activities that have nothing to say but that they live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity


@asynccontextmanager
async def heartbeating(every_s: float) -> AsyncIterator[None]:
    """Send a heartbeat every `every_s` seconds while the context is open, so that a dead worker is noticed soon and one
    that waits for a slow answer is not taken for dead."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(every_s)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
