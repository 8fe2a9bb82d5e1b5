"""Prometheus or VictoriaMetrics as a source of samples: a few queries for all nodes of a job, within a short bound."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import structlog

from activities.blindness import Blindness
from activities.metrics.canary import MetricsCanary
from activities.metrics.connection import PAUSE_S, MetricsUnreadable, PrometheusApi
from activities.metrics.names import Group, MetricNames
from activities.metrics.protocol import MetricsAnswer, MetricsState
from activities.metrics.queries import samples_of
from activities.metrics.series import MAX_SAMPLES, Series, as_samples, read_series
from activities.metrics.settings import PrometheusSettings
from recovery.model import NodeName

log = structlog.get_logger(__name__)

THREADS = 4
MAX_NODES = 512
FEW_NODES = 128
"""Of so many nodes the whole window is read, of more a shorter one: answers are bounded."""
SHORTEST_STRETCH = timedelta(minutes=2)
LONGEST_OWN_PAUSE_S = 10.0
"""A store is asked again after so long at most, unless it asks for more itself."""
SAY_AGAIN_S = 600.0
"""A store that stays unreadable is spoken of so often."""


class PrometheusMetrics:
    """One store, and the names that are looked for in it."""

    def __init__(self, settings: PrometheusSettings, names: MetricNames) -> None:
        self._settings = settings
        self._names = names
        self._api = PrometheusApi(settings)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="metrics")
        self._outage = _Outage()
        self._canary = MetricsCanary(self._api, settings, names, self._threads)

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """Since when the store tells nothing new, and why; empty while it does."""
        return self._canary.blindnesses

    async def keep_fresh(self) -> None:
        """Ask how fresh the store is, once per interval until cancelled."""
        await self._canary.run()

    @property
    def window(self) -> timedelta:
        """As the operator set it."""
        return timedelta(seconds=self._settings.window_s)

    async def samples(self, nodes: Sequence[NodeName], since: datetime, until: datetime) -> MetricsAnswer:
        """Ask for everything known of `nodes`. What can't be read is told, never raised."""
        if not nodes or until <= since:
            return MetricsAnswer(state=MetricsState.STALE, reason=f"{self._api.shown}: nothing to ask about")
        if len(nodes) > MAX_NODES:
            return _unreadable(f"{self._api.shown}: the job has {len(nodes)} nodes, more than {MAX_NODES}")
        if self._outage.lasts():
            return _unreadable(self._outage.reason)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                series, missing = await self._ask(nodes, since, until)
        except MetricsUnreadable as error:
            self._outage.begin(str(error), error.pause_s)
            return _unreadable(str(error))
        except TimeoutError:
            reason = f"{self._api.shown}: no answer within {self._settings.timeout_s:g} s; is it overloaded?"
            self._outage.begin(reason, PAUSE_S)
            return _unreadable(reason)
        self._outage.end(self._api.shown)
        return self._judged(series, until, missing)

    def close(self) -> None:
        """Give up connections and threads; one that waits for an answer ends with its time-out."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._api.close()

    async def _ask(self, nodes: Sequence[NodeName], since: datetime, until: datetime) -> tuple[list[Series], str]:
        """Return what was found, and why some of it is missing. Raises `MetricsUnreadable` where nothing was read."""
        loop = asyncio.get_running_loop()
        queries = (self._query(group, nodes, until - since) for group in Group if self._names.of_group(group))
        asked = [loop.run_in_executor(self._threads, self._read, query, nodes, until) for query in queries]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if unforeseen := [a for a in answers if isinstance(a, BaseException) and not isinstance(a, MetricsUnreadable)]:
            raise unforeseen[0]
        refused = [answer for answer in answers if isinstance(answer, MetricsUnreadable)]
        if len(refused) == len(answers):
            raise refused[0]
        found = [series for answer in answers if isinstance(answer, list) for series in answer]
        return found, str(refused[0]) if refused else ""

    def _query(self, group: Group, nodes: Sequence[NodeName], stretch: timedelta) -> str:
        labels = self._settings.labels
        return samples_of(
            self._names.of_group(group),
            nodes,
            min(stretch, max(SHORTEST_STRETCH, stretch * FEW_NODES / len(nodes))),
            node_label=labels.gpu_node if group.of_gpus else labels.host_node,
            matchers=self._settings.matchers,
        )

    def _read(self, query: str, nodes: Sequence[NodeName], until: datetime) -> list[Series]:
        """In a thread: ask, and parse what may be megabytes."""
        return read_series(self._api.query(query, until), nodes, self._names, self._settings.labels)

    def _judged(self, series: list[Series], until: datetime, missing: str) -> MetricsAnswer:
        scrapes = self._settings.stale_after_scrapes
        if not series:
            reason = f"{self._api.shown}: no known series of the job's nodes; see `relight doctor metrics`"
            return MetricsAnswer(state=MetricsState.STALE, reason=reason)
        if all(each.is_stale(until, scrapes) for each in series):
            age_s = (until - max(each.newest_at for each in series)).total_seconds()
            reason = f"{self._api.shown}: the newest sample is {age_s:.0f} s older than the attempt's end"
            return MetricsAnswer(state=MetricsState.STALE, reason=reason)
        samples = as_samples(series, until, scrapes)
        if len(samples) > MAX_SAMPLES:
            return _unreadable(f"{self._api.shown}: {len(samples)} samples tell of the job, more than {MAX_SAMPLES}")
        return MetricsAnswer(state=MetricsState.FRESH, reason=missing, samples=samples)


class _Outage:
    """A store without usable answers is left alone, for longer each time within bounds, and people are told."""

    def __init__(self) -> None:
        self.reason = ""
        self._until_s = 0.0
        self._told_s = float("-inf")
        self._times = 0

    def lasts(self) -> bool:
        """Whether the store is to be left alone yet."""
        return asyncio.get_running_loop().time() < self._until_s

    def begin(self, reason: str, pause_s: float) -> None:
        """Note one more question without a usable answer."""
        now_s = asyncio.get_running_loop().time()
        self._times += 1
        self._until_s = now_s + max(pause_s, min(LONGEST_OWN_PAUSE_S, PAUSE_S * self._times))
        if reason != self.reason or now_s - self._told_s > SAY_AGAIN_S:
            log.warning("no metrics: verdicts are made without", reason=reason)
            self._told_s = now_s
        self.reason = reason

    def end(self, shown: str) -> None:
        """Note a usable answer."""
        if self._times:
            log.info("metrics can be read again", source=shown)
        self._times, self.reason = 0, ""


def _unreadable(reason: str) -> MetricsAnswer:
    return MetricsAnswer(state=MetricsState.UNREADABLE, reason=reason)
