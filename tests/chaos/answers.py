"""Asking a scheduler that may be out of order, as a person would: again, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from activities.scheduler.protocol import SchedulerUnavailable

MAX_TRIES = 60
PAUSE_S = 0.5
Answer = TypeVar("Answer")


async def answered(command: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer. Raises `SchedulerUnavailable` when there is none in `MAX_TRIES` tries."""
    for _ in range(MAX_TRIES):
        try:
            return await command()
        except SchedulerUnavailable:
            await asyncio.sleep(PAUSE_S)
    raise SchedulerUnavailable(f"no answer in {MAX_TRIES} tries")
