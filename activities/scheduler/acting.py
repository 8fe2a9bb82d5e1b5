"""What every act on a scheduler has in common, whatever it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.exceptions import ApplicationError

from activities.heartbeats import heartbeating
from activities.scheduler.protocol import SchedulerUnavailable

HEARTBEAT_S = 2.0
NO_ACTS_HERE = "the operator's settings do not allow acts here any more"
"""Why an order is abandoned as ``mode_observe`` that a worker's own settings forbid."""


@asynccontextmanager
async def acting() -> AsyncIterator[None]:
    """Send heartbeats while the context is open. A scheduler without an answer ends the act with a retryable
    `ApplicationError` of the type ``SchedulerUnavailable``."""
    try:
        async with heartbeating(HEARTBEAT_S):
            yield
    except SchedulerUnavailable as error:
        raise ApplicationError(str(error), type="SchedulerUnavailable") from error
