"""How fresh a store of metrics is, learned before anybody needs it: one query per interval and cluster, for the newest
sample of any node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.blindness import Blindness, blind
from activities.metrics.connection import MetricsUnreadable, PrometheusApi
from activities.metrics.names import Group, MetricNames
from activities.metrics.queries import selector
from activities.metrics.settings import PrometheusSettings


class _Newest(BaseModel):
    """One group of an instant query's answer: its value is text."""

    model_config = ConfigDict(frozen=True)

    metric: dict[str, str]
    value: tuple[float, str] = Field(default=(0.0, ""))


class MetricsCanary:
    """Asks one store how old what it has is."""

    def __init__(self, api: PrometheusApi, settings: PrometheusSettings, names: MetricNames, threads: Executor) -> None:
        self._api = api
        self._settings = settings
        self._names = names
        self._threads = threads
        self._watched: tuple[str, ...] = ()
        """A series of GPUs and one of hosts that the store has: enough to know whether it is fed."""
        self._newest_at: datetime | None = None
        self._begun_at = datetime.now(UTC)
        self._unread_since: datetime | None = None
        self._because = ""

    @property
    def blindnesses(self) -> tuple[Blindness, ...]:
        """Since when the store tells nothing new, and why; empty while it does, and before it was asked."""
        if self._unread_since is not None:
            return (blind(self._settings.name, self._unread_since, self._because),)
        newest_at = self._newest_at or self._begun_at
        if datetime.now(UTC) - newest_at <= timedelta(seconds=self._settings.stale_after_s):
            return ()
        why = "no new sample of any node: does it scrape its targets? see `relight doctor metrics`"
        return (blind(self._settings.name, newest_at, f"{self._api.shown}: {why}"),)

    async def run(self) -> None:
        """Ask once per interval until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = time.monotonic()
            try:
                newest_at = await loop.run_in_executor(self._threads, self._look)
                self._unread_since = None
                self._newest_at = newest_at or self._newest_at
            except MetricsUnreadable as error:
                self._unread_since = self._unread_since or datetime.now(UTC)
                self._because = str(error)
            await asyncio.sleep(max(1.0, self._settings.canary_s - (time.monotonic() - began_s)))

    def _look(self) -> datetime | None:
        """In a thread: return when the newest sample was scraped; None where there is none."""
        if not self._watched:
            self._watched = self._there()
        if not self._watched:
            return None
        # Each name by itself: functions drop it, and a store refuses what is then twice the same.
        each = " or ".join(f"timestamp({selector([name], self._settings.matchers)})" for name in self._watched)
        found = _read(self._api.query(f"max({each})"))
        if not found:
            self._watched = ()
            return None
        return datetime.fromtimestamp(float(found[0].value[1]), UTC)

    def _there(self) -> tuple[str, ...]:
        known = selector(sorted(self._names.by_series), self._settings.matchers)
        there = {found.metric.get("__name__", "") for found in _read(self._api.query(f"count by (__name__) ({known})"))}
        first = (self._first(there, of_gpus=of_gpus) for of_gpus in (True, False))
        return tuple(name for name in first if name)

    def _first(self, there: set[str], *, of_gpus: bool) -> str:
        groups = (group for group in Group if group.of_gpus is of_gpus)
        return next((name for group in groups for name in self._names.of_group(group) if name in there), "")


def _read(answer: Sequence[object]) -> list[_Newest]:
    try:
        return [_Newest.model_validate(each) for each in answer]
    except ValidationError as error:
        raise MetricsUnreadable("an answer of the store of metrics is not what its API says", "check `url`") from error
