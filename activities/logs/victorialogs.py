"""VictoriaLogs' HTTP API: ``/select/logsql/query``, ``tail`` as an endless answer, ``field_names`` (seen on 1.52).

Answers are JSON lines, one object per entry with its time in ``_time`` (RFC 3339 with nanoseconds) and its text in
``_msg``; labels are fields. A range's end is excluded. ``limit`` alone returns any entries, so that each query sorts.
"""

from __future__ import annotations

import contextlib
import json
import time
from calendar import timegm
from collections.abc import AsyncGenerator, Sequence
from functools import lru_cache

import re2

from activities.logs.stores.client import ClientOfStore, StoreClient
from activities.logs.stores.protocol import Entry, Nanoseconds, Pushed, Sample, Window, entry_of
from activities.logs.stores.quoting import quoted
from activities.logs.stores.settings import VictoriaLogsSettings

MOST_ENTRIES = 10_000
TAIL_DELAY = "1s"
"""How far behind the newest entries the store keeps its tail, for what arrives out of order."""
TAIL_EVERY = "500ms"
_API = "/select/logsql"
_SECOND = re2.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")


class VictoriaLogs(ClientOfStore):
    """A `LogStore`."""

    most_entries = MOST_ENTRIES

    def __init__(self, settings: VictoriaLogsSettings, cluster: str) -> None:
        self._settings = settings
        self._cluster = cluster
        account, _, project = settings.tenant.partition(":")
        tenant = {"AccountID": account, "ProjectID": project} if settings.tenant else {}
        super().__init__(StoreClient(settings, tenant, method="POST"))

    async def page(
        self, job_ids: Sequence[str], window: Window, limit: int, *, newest_first: bool = False
    ) -> list[Entry]:
        """Return the first `limit` entries of these jobs in `window`, in order of time; or the last, newest first."""
        return await self._query(self._filter(job_ids), window, limit, newest_first=newest_first)

    async def push(self, job_ids: Sequence[str], since_ns: Nanoseconds) -> AsyncGenerator[Pushed, None]:
        """Yield entries of these jobs as they arrive, beginning with those since `since_ns`."""
        back_s = max(0, time.time_ns() - since_ns) // 1_000_000_000 + 1
        params = {
            "query": self._filter(job_ids),
            "start_offset": f"{back_s}s",
            "offset": TAIL_DELAY,
            "refresh_interval": TAIL_EVERY,
        }
        async with contextlib.aclosing(self._client.lines(f"{_API}/tail", params)) as arriving:
            async for lines in arriving:
                yield Pushed([self.entry(line) for line in lines])

    async def newest_ns(self, window: Window) -> Nanoseconds | None:
        """Return the time of the newest line in `window` of those that never stop; None when there is none."""
        found = await self._query(self._settings.canary or self._filter(()), window, 1, newest_first=True)
        return found[0].ns if found else None

    async def label_names(self, window: Window) -> tuple[str, ...]:
        """Return the names of the fields that lines in `window` have."""
        body = await self._client.get(f"{_API}/field_names", {"query": "*", **_bounds(window)})
        try:
            return tuple(str(value["value"]) for value in json.loads(body)["values"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._client.unusable(body) from error

    async def survey(
        self,
        window: Window,
        limit: int,
        *,
        labels: Sequence[str] = (),  # noqa: ARG002 - no label is needed to select by
        containing: str = "",
    ) -> list[Sample]:
        """Return up to `limit` of the newest entries in `window` of anybody; those with the words `containing`."""
        query = f"{quoted(containing) if containing else '*'} | sort by (_time desc) limit {limit}"
        body = await self._client.get(f"{_API}/query", {"query": query, **_bounds(window)})
        found = [self._sample(line) for line in body.split(b"\n") if line]
        return sorted(found, reverse=True, key=lambda sample: sample.ns)

    async def tenants(self, window: Window) -> tuple[str, ...]:
        """Return those with entries in `window`. The store tells only those who ask for no tenant (seen on 1.52)."""
        client = StoreClient(self._settings, {}, method="POST")
        try:
            body = await client.get("/select/tenant_ids", _bounds(window))
        finally:
            await client.close()
        try:
            return tuple(f"{int(each['account_id'])}:{int(each['project_id'])}" for each in json.loads(body))
        except (KeyError, TypeError, ValueError) as error:
            raise client.unusable(body) from error

    def _filter(self, job_ids: Sequence[str]) -> str:
        names = self._settings.labels
        jobs = f"in({','.join(map(quoted, job_ids))})" if job_ids else "*"
        parts = [self._settings.selector and f"({self._settings.selector})", f"{quoted(names.job_id)}:{jobs}"]
        if names.cluster:
            parts.append(f"{quoted(names.cluster)}:={quoted(self._cluster)}")
        return " ".join(part for part in parts if part)

    async def _query(self, query: str, window: Window, limit: int, *, newest_first: bool) -> list[Entry]:
        order = "desc" if newest_first else "asc"
        ordered = f"{query} | sort by (_time {order}) limit {limit}"
        body = await self._client.get(f"{_API}/query", {"query": ordered, **_bounds(window)})
        entries = [self.entry(line) for line in body.split(b"\n") if line]
        return sorted(entries, key=lambda entry: entry.ns, reverse=newest_first)

    def _sample(self, line: bytes) -> Sample:
        try:
            fields = json.loads(line)
            labels = {name: str(value)[:300] for name, value in fields.items() if not name.startswith("_")}
            return Sample(nanoseconds_of(fields["_time"]), fields.get("_msg") or "", labels)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._client.unusable(line) from error

    def entry(self, line: bytes) -> Entry:
        """Read one line of an answer. Raises `StoreError`."""
        try:
            fields = json.loads(line)
            return entry_of(fields, self._settings.labels, nanoseconds_of(fields["_time"]), fields.get("_msg") or "")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._client.unusable(line) from error


def nanoseconds_of(stamp: str) -> Nanoseconds:
    """Read a time such as ``2026-03-01T08:00:00.000000001Z``. Raises ValueError."""
    second, dot, digits = stamp.removesuffix("Z").partition(".")
    if not stamp.endswith("Z") or (dot and not (digits.isascii() and digits.isdigit() and len(digits) <= 9)):
        raise ValueError(f"not a time: {stamp[:40]!r}")
    return _second(second) * 1_000_000_000 + int(digits.ljust(9, "0"))


@lru_cache(maxsize=1_024)
def _second(stamp: str) -> int:
    """Lines of one second come together: what is costly is done once for all of them."""
    if not _SECOND.match(stamp):
        raise ValueError(f"not a time: {stamp[:40]!r}")
    return timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S"))


def _bounds(window: Window) -> dict[str, str]:
    return {"start": str(window.start_ns), "end": str(window.end_ns)}
