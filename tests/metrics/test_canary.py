"""The freshness of a store of metrics is known before anybody asks it for evidence."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable

import pytest

from activities.blindness import Blindness
from activities.metrics.prometheus import PrometheusMetrics
from recovery.model import Mode
from tests.metrics.stores import Exporter, MetricStore
from workers.metric_sources import open_metrics
from workers.settings import ClusterSettings

SERIES = ('DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="node01"} 99', 'node_vmstat_oom_kill{instance="node01:9100"} 0')


@pytest.fixture
async def watched(store: MetricStore, exporter: Exporter) -> AsyncIterator[PrometheusMetrics]:
    exporter.show(*SERIES)
    metrics = store.settings(canary_s=1, stale_after_s=10, timeout_s=2)
    async with open_metrics(ClusterSettings(name="alpha", mode=Mode.OBSERVE, metrics=metrics)) as source:
        assert isinstance(source, PrometheusMetrics)
        yield source


async def until(
    source: PrometheusMetrics, holds: Callable[[tuple[Blindness, ...]], bool], timeout_s: float = 60
) -> tuple[Blindness, ...]:
    async with asyncio.timeout(timeout_s):
        while not holds(source.blindnesses):
            await asyncio.sleep(0.2)
    return source.blindnesses


async def test_a_store_that_does_not_answer_is_blind_until_it_does(
    watched: PrometheusMetrics, store: MetricStore
) -> None:
    await asyncio.sleep(4)
    assert watched.blindnesses == ()
    assert store.process is not None
    store.process.send_signal(signal.SIGSTOP)
    try:
        [found] = await until(watched, bool)
    finally:
        store.process.send_signal(signal.SIGCONT)
    assert found.source == "prometheus"
    assert "no answer within 2 s" in found.reason
    assert await until(watched, lambda blind: not blind) == ()


async def test_a_store_that_scrapes_nothing_new_is_blind_since_its_newest_sample(
    watched: PrometheusMetrics, exporter: Exporter
) -> None:
    await asyncio.sleep(4)
    assert watched.blindnesses == ()
    exporter.show()
    [found] = await until(watched, bool)
    assert "no new sample of any node" in found.reason
    exporter.show(*SERIES)
    assert await until(watched, lambda blind: not blind) == ()
