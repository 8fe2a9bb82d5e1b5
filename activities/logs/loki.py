"""Grafana Loki's HTTP API: ``query_range``, ``tail`` over a websocket, ``labels``.

As its reference describes it (v2.x and v3.x): times are nanoseconds since the epoch in strings, a range's end is
excluded, ``limit`` counts the entries of all streams together, and ``tail`` tells of what it dropped. An entry may have
a third part, its structured metadata. LogQL anchors what ``=~`` matches.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from activities.logs.stores.client import ClientOfStore, StoreClient
from activities.logs.stores.protocol import Entry, Nanoseconds, Pushed, Sample, Window, entry_of
from activities.logs.stores.quoting import any_of, quoted
from activities.logs.stores.settings import LokiSettings

MOST_ENTRIES = 5_000
"""Loki's default of ``max_entries_limit_per_query``."""
MOST_SELECTORS = 6
"""How many labels a text is looked for by."""
_API = "/loki/api/v1"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}$")


class Loki(ClientOfStore):
    """A `LogStore`."""

    most_entries = MOST_ENTRIES

    def __init__(self, settings: LokiSettings, cluster: str) -> None:
        self._settings = settings
        self._cluster = cluster
        tenant = {"X-Scope-OrgID": settings.tenant} if settings.tenant else {}
        super().__init__(StoreClient(settings, tenant, method="GET"))

    async def page(
        self, job_ids: Sequence[str], window: Window, limit: int, *, newest_first: bool = False
    ) -> list[Entry]:
        """Return the first `limit` entries of these jobs in `window`, in order of time; or the last, newest first."""
        return await self._query(self._selector(job_ids), window, limit, newest_first=newest_first)

    async def push(self, job_ids: Sequence[str], since_ns: Nanoseconds) -> AsyncGenerator[Pushed, None]:
        """Yield entries of these jobs as they arrive, beginning with those since `since_ns`."""
        params = {"query": self._selector(job_ids), "start": str(since_ns), "limit": str(MOST_ENTRIES)}
        async with contextlib.aclosing(self._client.messages(f"{_API}/tail", params)) as messages:
            async for message in messages:
                if not message:
                    yield Pushed([])
                    continue
                told = self._parsed(message)
                yield Pushed(self._entries(told.get("streams") or [], message), len(told.get("dropped_entries") or ()))

    async def newest_ns(self, window: Window) -> Nanoseconds | None:
        """Return the time of the newest line in `window` of those that never stop; None when there is none."""
        found = await self._query(self._settings.canary or self._selector(()), window, 1, newest_first=True)
        return found[0].ns if found else None

    async def label_names(self, window: Window) -> tuple[str, ...]:
        """Return the names of the labels that lines in `window` have."""
        params = {"start": str(window.start_ns), "end": str(window.end_ns)}
        body = await self._client.get(f"{_API}/labels", params)
        names = self._parsed(body).get("data") or []
        return tuple(name for name in names if isinstance(name, str))

    async def survey(
        self, window: Window, limit: int, *, labels: Sequence[str] = (), containing: str = ""
    ) -> list[Sample]:
        """Return up to `limit` of the newest entries in `window` of anybody, newest first, for each of some labels that
        the store has, `labels` before others: a selector needs one. An entry with several of them comes once."""
        there = [name for name in await self.label_names(window) if _LABEL.match(name)]
        by = [*(name for name in labels if name in there), *(name for name in there if name not in labels)]
        wanted = f" |= {quoted(containing)}" if containing else ""
        earlier: list[str] = []
        found: list[Sample] = []
        for name in by[:MOST_SELECTORS]:
            others = "".join(f', {each}=""' for each in earlier)
            query = f"{{{name}=~{quoted('.+')}{others}}}{wanted}"
            streams, body = await self._streams(query, window, limit, newest_first=True)
            found += (Sample(ns, text, _words(of)) for of, ns, text in self._values(streams, body))
            earlier.append(name)
        return sorted(found, reverse=True, key=lambda sample: sample.ns)

    async def tenants(self, window: Window) -> tuple[str, ...]:  # noqa: ARG002 - Loki does not tell
        """Return the name that Loki gives the one tenant of a store without tenants. It can't be asked for others."""
        return ("fake",)

    def _selector(self, job_ids: Sequence[str]) -> str:
        names = self._settings.labels
        matchers = [f"{names.job_id}=~{any_of(job_ids) if job_ids else quoted('.+')}"]
        if names.cluster:
            matchers.append(f"{names.cluster}={quoted(self._cluster)}")
        if self._settings.selector:
            matchers.insert(0, self._settings.selector[1:-1])
        return "{" + ", ".join(matchers) + "}"

    async def _query(self, query: str, window: Window, limit: int, *, newest_first: bool) -> list[Entry]:
        streams, body = await self._streams(query, window, limit, newest_first=newest_first)
        return sorted(self._entries(streams, body), key=lambda entry: entry.ns, reverse=newest_first)

    async def _streams(self, query: str, window: Window, limit: int, *, newest_first: bool) -> tuple[Any, bytes]:
        params = {
            "query": query,
            "start": str(window.start_ns),
            "end": str(window.end_ns),
            "limit": str(limit),
            "direction": "backward" if newest_first else "forward",
        }
        body = await self._client.get(f"{_API}/query_range", params)
        data = self._parsed(body).get("data")
        if not isinstance(data, dict) or data.get("resultType") != "streams":
            raise self._client.unusable(body)
        return data.get("result") or [], body

    def _parsed(self, body: bytes) -> dict[str, Any]:
        try:
            told = json.loads(body)
        except ValueError as error:
            raise self._client.unusable(body) from error
        if not isinstance(told, dict):
            raise self._client.unusable(body)
        return told

    def _entries(self, streams: Any, body: bytes) -> list[Entry]:
        names = self._settings.labels
        return [entry_of(labels, names, ns, text) for labels, ns, text in self._values(streams, body)]

    def _values(self, streams: Any, body: bytes) -> Iterator[tuple[dict[str, Any], Nanoseconds, str]]:
        try:
            for stream in streams:
                for value in stream["values"]:
                    yield _labels(stream["stream"], value), int(value[0]), str(value[1])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self._client.unusable(body) from error


def _labels(stream: dict[str, Any], value: Sequence[Any]) -> dict[str, Any]:
    return {**stream, **value[2]} if len(value) > 2 and isinstance(value[2], dict) else stream


def _words(labels: dict[str, Any]) -> dict[str, str]:
    return {name: value[:300] for name, value in labels.items() if isinstance(value, str)}
