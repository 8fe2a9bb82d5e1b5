"""Waiting for what announces itself to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Found = TypeVar("Found")


async def until_some(
    look: Callable[[], Awaitable[Found | None]], *, every_s: float = 0.25, timeout_s: float | None = None
) -> Found:
    """Look every `every_s` seconds until there is something. Raises TimeoutError when there is not in time."""
    async with asyncio.timeout(timeout_s):
        while (found := await look()) is None:  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(every_s)
    return found


async def until(holds: Callable[[], Awaitable[bool]], *, every_s: float = 0.25, timeout_s: float | None = None) -> None:
    """Look every `every_s` seconds until `holds` says so. Raises TimeoutError when it does not in time."""

    async def look() -> bool | None:
        return await holds() or None

    await until_some(look, every_s=every_s, timeout_s=timeout_s)
