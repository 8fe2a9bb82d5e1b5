"""How many calls a transport makes: a token bucket, so that relight is never what slurmctld is busy with.

In quiet times relight makes one call per interval, whatever the number of jobs. In a storm of failures each recovery
makes some twenty; this bounds what they come to together. A call waits for its turn, and is never dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from activities.scheduler.command import Finished, Runner

BURST_S = 10.0
"""So many seconds' worth of calls may be made at once after a quiet time."""


class Pace:
    """Gives out turns: at most `calls_per_s` a second in the long run, in the order in which they are asked for."""

    def __init__(self, calls_per_s: float, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._calls_per_s = calls_per_s
        self._clock_s = clock_s
        self._most = max(1.0, calls_per_s * BURST_S)
        self._left = self._most
        self._counted_at_s = clock_s()
        self._queue = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until a call may be made."""
        async with self._queue:
            self._count()
            if self._left < 1:
                await asyncio.sleep((1 - self._left) / self._calls_per_s)
                self._count()
            self._left -= 1

    def _count(self) -> None:
        now_s = self._clock_s()
        self._left = min(self._most, self._left + (now_s - self._counted_at_s) * self._calls_per_s)
        self._counted_at_s = now_s


class PacedRunner:
    """A `Runner` whose commands wait for their turn."""

    def __init__(self, runner: Runner, pace: Pace) -> None:
        self._runner = runner
        self._pace = pace

    async def run(self, *command: str, stdin: str = "") -> Finished:
        """Run `command` once it is its turn."""
        await self._pace.turn()
        return await self._runner.run(*command, stdin=stdin)
