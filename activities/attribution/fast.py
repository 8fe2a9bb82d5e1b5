"""An opinion for which nobody waits: it is asked for while relight looks itself, and is there by then or is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from activities.attribution.protocol import AskPhase, AttributionService, Question
from recovery.opinion import Heard, Opinion


class FastOpinion:
    """What comes of asking beside something else."""

    def __init__(self, asking: asyncio.Task[Heard] | None) -> None:
        self._asking = asking

    def heard(self) -> Opinion | None:
        """Return the opinion, if there is one by now."""
        if self._asking is None or not self._asking.done():
            return None
        heard = self._asking.result()
        return heard if isinstance(heard, Opinion) else None


@contextmanager
def asked_beside(service: AttributionService | None, question: Question) -> Iterator[FastOpinion]:
    """Ask `service`, where there is one that answers fast, while the context is open."""
    if service is None or not service.fast_s:
        yield FastOpinion(None)
        return
    asking = asyncio.create_task(service.ask(question, AskPhase.FAST), name=f"fast opinion of {service.name}")
    try:
        yield FastOpinion(asking)
    finally:
        asking.cancel()
