"""The scheduler of `tests.resubmission.world` for a worker and the watchdog at once: their calls mingle, and
submissions come at any later time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from activities.scheduler.protocol import SchedulerUnavailable
from recovery.model import JobId
from tests.resubmission.world import WorldScheduler

LATE_S = (5, 20, 40, 62, 70, 80, 100, 400, 700)


class Busy(WorldScheduler):
    """The same scheduler for a worker and the watchdog, whose calls mingle."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.after_each: Callable[[], None] = lambda: None
        self.cancel_sent_at: dict[JobId, datetime] = {}
        self._late_submissions: list[tuple[datetime, Callable[[], object]]] = []

    async def cancel(self, job_id: JobId) -> None:
        self.cancel_sent_at[job_id] = self.now
        await super().cancel(job_id)

    async def _call(self, verb: str, carry_out: Callable[[], Any]) -> Any:
        """A submission may come at any later time, but never twice: munge refuses a message that was sent before."""
        for _ in range(self._draw.choice((1, 1, 2, 5, 12))):
            await asyncio.sleep(0)
        if verb != "submit" or self.calm:
            return await super()._call(verb, carry_out)
        self.before_each(verb)
        self.pass_time(1)
        if self._draw.random() < 0.6:
            return carry_out()
        self._late_submissions.append((self.now + timedelta(seconds=self._draw.choice(LATE_S)), carry_out))
        raise SchedulerUnavailable("late")

    def pass_time(self, seconds: int) -> None:
        for due, carry_out in list(self._late_submissions):
            if due <= self.now:
                self._late_submissions.remove((due, carry_out))
                carry_out()
        super().pass_time(seconds)
        self.after_each()
