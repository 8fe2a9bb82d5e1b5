"""Which fault happens to which call: drawn from a seed, so that a run can be repeated."""

from __future__ import annotations

import random

from activities.scheduler.simulated_wire import Fault, Inject


class Injector:
    """Draws at most one fault for each call."""

    def __init__(self, settings: Inject) -> None:
        self.delay_s = settings.delay_s
        self._rates = settings.rates
        self._random = random.Random(settings.seed)  # noqa: S311 - repeatable on purpose

    def draw(self) -> Fault | None:
        """Return the fault of the next call, None for none."""
        point = self._random.random()
        for fault, rate in self._rates.items():
            if point < rate:
                return fault
            point -= rate
        return None
