"""How tests ask a source, and wait for what was scraped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from activities.metrics.prometheus import PrometheusMetrics
from activities.metrics.protocol import MetricsAnswer

WINDOW = timedelta(minutes=10)
NODES = ("gpu01", "gpu02")


async def asked(source: PrometheusMetrics, *nodes: str, window: timedelta = WINDOW) -> MetricsAnswer:
    """What the source knows now."""
    now = datetime.now(UTC)
    return await source.samples(nodes or NODES, now - window, now)


async def until(
    source: PrometheusMetrics, holds: Callable[[MetricsAnswer], bool], *nodes: str, window: timedelta = WINDOW
) -> MetricsAnswer:
    """Ask until `holds` is true of the answer."""
    async with asyncio.timeout(90):
        while not holds(answer := await asked(source, *nodes, window=window)):
            await asyncio.sleep(0.2)
    return answer


def shows(text: str) -> Callable[[MetricsAnswer], bool]:
    """Whether a sample of an answer holds `text`."""
    return lambda answer: any(text in sample.text for sample in answer.samples)
