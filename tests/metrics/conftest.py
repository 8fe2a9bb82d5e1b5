"""One exporter, and the stores that scrape it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from activities.metrics.names import known_names
from activities.metrics.prometheus import PrometheusMetrics
from tests.metrics.stores import KINDS, Exporter, MetricStore, running_exporter, running_store


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with running_exporter() as exporter:
        yield exporter


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest, exporter: Exporter) -> Iterator[MetricStore]:
    with running_store(request.param, exporter) as store:
        yield store


@pytest.fixture
async def source(store: MetricStore) -> AsyncIterator[PrometheusMetrics]:
    source = PrometheusMetrics(store.settings(), known_names())
    yield source
    source.close()
