"""What long activities owe Temporal: a sign that they live, and to leave when their worker does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory


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


def hand_over_on_shutdown() -> None:
    """Leave a long activity at once when its worker shuts down; the next worker goes on from the last heartbeat."""
    if activity.is_worker_shutdown():
        raise ApplicationError(
            "the worker shuts down; another one takes over",
            type="WorkerShutdown",
            next_retry_delay=timedelta(milliseconds=200),
            category=ApplicationErrorCategory.BENIGN,
        )
