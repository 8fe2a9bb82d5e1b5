"""What a worker counts, sent to an OpenTelemetry receiver over OTLP/HTTP once in a while: sources and jobs that are
blind, and lines that are known to be lost.

| name | kind | attributes |
|---|---|---|
| ``relight.source.blind`` | gauge, seconds since it was seen last | ``relight.cluster``, ``relight.source`` |
| ``relight.jobs.blind`` | gauge, jobs | ``relight.cluster`` |
| ``relight.logs.lost_lines`` | counter, lines | ``relight.cluster``, ``relight.source`` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from activities.blindness import Sighted
from activities.telemetry import EXPORT_TIMEOUT_S, resource

EVERY_S = 15.0


class Gauges:
    """Sends what it is told to look at to `otlp_endpoint`, the base address of an OTLP/HTTP receiver; with an empty one
    nothing. A receiver that is away costs a line in the log."""

    def __init__(self, otlp_endpoint: str, *, every_s: float = EVERY_S) -> None:
        self._sources: list[tuple[str, Sighted]] = []
        self._blind_jobs: list[tuple[str, Callable[[], int]]] = []
        self._lost_lines: list[tuple[str, Callable[[], Mapping[str, int]]]] = []
        self._provider = _provider(f"{otlp_endpoint.rstrip('/')}/v1/metrics", every_s) if otlp_endpoint else None
        if self._provider is not None:
            meter = self._provider.get_meter("relight")
            meter.create_observable_gauge("relight.source.blind", [self._for_how_long], unit="s")
            meter.create_observable_gauge("relight.jobs.blind", [self._how_many_jobs], unit="{job}")
            meter.create_observable_counter("relight.logs.lost_lines", [self._how_many_lines], unit="{line}")

    def watch_sources(self, cluster: str, sources: Sequence[Sighted]) -> None:
        """Tell for how long each of `sources` has been blind, while one is."""
        self._sources += [(cluster, source) for source in sources]

    def watch_jobs(self, cluster: str, blind: Callable[[], int]) -> None:
        """Tell how many jobs are shown as blind."""
        self._blind_jobs.append((cluster, blind))

    def watch_lost_lines(self, cluster: str, lost: Callable[[], Mapping[str, int]]) -> None:
        """Tell how many lines each log store has lost, by its name."""
        self._lost_lines.append((cluster, lost))

    def close(self) -> None:
        """Send the last values and close the connections. May take as long as the receiver does."""
        if self._provider is not None:
            self._provider.shutdown(timeout_millis=EXPORT_TIMEOUT_S * 1_000)

    def _for_how_long(self, _: CallbackOptions) -> Iterable[Observation]:
        now = datetime.now(UTC)
        for cluster, source in self._sources:
            for found in source.blindnesses:
                yield Observation((now - found.since).total_seconds(), _where(cluster, found.source))

    def _how_many_jobs(self, _: CallbackOptions) -> Iterable[Observation]:
        for cluster, blind in self._blind_jobs:
            yield Observation(blind(), {"relight.cluster": cluster})

    def _how_many_lines(self, _: CallbackOptions) -> Iterable[Observation]:
        for cluster, lost in self._lost_lines:
            for source, lines in lost().items():
                yield Observation(lines, _where(cluster, source))


def _where(cluster: str, source: str) -> dict[str, str]:
    return {"relight.cluster": cluster, "relight.source": source}


def _provider(endpoint: str, every_s: float) -> MeterProvider:
    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=every_s * 1_000)
    return MeterProvider([reader], resource=resource(), shutdown_on_exit=False)
