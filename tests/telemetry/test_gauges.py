"""What a worker counts, received by a real OTLP/HTTP receiver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from activities.blindness import Blindness, blind
from activities.gauges import Gauges
from tests.telemetry.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class Source:
    blindnesses: tuple[Blindness, ...] = ()


def test_blind_sources_and_jobs_and_lost_lines_are_told_for_each_cluster(receiver: Receiver) -> None:
    gauges = Gauges(receiver.address, every_s=0.2)
    source, well = Source(), Source()
    source.blindnesses = (blind("loki", datetime.now(UTC) - timedelta(seconds=90), "no answer"),)
    gauges.watch_sources("alpha", (source, well))
    gauges.watch_sources("beta", (well,))
    gauges.watch_jobs("alpha", lambda: 3)
    gauges.watch_jobs("beta", lambda: 0)
    gauges.watch_lost_lines("alpha", lambda: {"loki": 5})
    deadline = time.monotonic() + 30
    while len(receiver.points) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    gauges.close()
    points = receiver.points
    assert 90 <= points.pop(("relight.source.blind", "alpha", "loki")) < 150
    assert points == {
        ("relight.jobs.blind", "alpha"): 3,
        ("relight.jobs.blind", "beta"): 0,
        ("relight.logs.lost_lines", "alpha", "loki"): 5,
    }


def test_without_a_receiver_nothing_is_sent() -> None:
    gauges = Gauges("")
    gauges.watch_jobs("alpha", lambda: 1)
    gauges.close()
