"""How a service is asked until there is an answer: not for ever, not without a pause, and never as an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from activities.attribution.answers import no_opinion
from activities.stores.errors import StoreBusy, StoreError, StoreRefused, TooMuch
from recovery.opinion import Heard

LONGEST_PAUSE_S = 30.0


async def patiently(says: str, limit_s: float, ask: Callable[[], Awaitable[Heard]]) -> Heard:
    """Return what `ask` gives, for which it is called again while that may help, within `limit_s`; after that, or where
    the service refuses, what stood in the way as the reason why `says` has no opinion."""
    trouble = f"no answer of {says} within {limit_s:g} s"
    pause_s = 0.0
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    return await ask()
                except (StoreRefused, TooMuch) as error:
                    return no_opinion(says, str(error))
                except StoreError as error:
                    trouble = str(error)
                    asked_s = error.retry_after_s if isinstance(error, StoreBusy) else max(1.0, 2 * pause_s)
                    pause_s = min(LONGEST_PAUSE_S, asked_s)
                await asyncio.sleep(pause_s)
    except TimeoutError:
        return no_opinion(says, trouble)
