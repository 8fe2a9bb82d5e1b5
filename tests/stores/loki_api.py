"""Loki's HTTP API as far as a reader of logs sees it, in memory: ``python -m tests.stores.loki_api --port 3100``.

Loki is under the AGPL, and this project brings nothing of that licence with it, not even for its tests. This stands in
for it, written from the reference of its HTTP API and of LogQL's stream selectors. To run the same tests against a Loki
of your own, set ``TESTS_LOKI_URL``.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import re2
from aiohttp import WSMsgType, web

MAX_ENTRIES = 5_000
MAX_RANGE_NS = 721 * 3_600 * 1_000_000_000
TAIL_EVERY_S = 0.2
_MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|`[^`]*`)\s*(,|$)')
_LINE_FILTER = re.compile(r'(\{.*\})\s*\|=\s*("(?:[^"\\\n]|\\.)*"|`[^`]*`)\s*$', re.DOTALL)

Labels = dict[str, str]


class BadQuery(ValueError):
    """What Loki answers 400 to."""


@dataclass
class Stream:
    labels: Labels
    entries: list[tuple[int, str]] = field(default_factory=list)
    known: set[tuple[int, str]] = field(default_factory=set)

    def add(self, ns: int, line: str) -> bool:
        """Keep an entry; one that is there already is dropped, as Loki does."""
        if (ns, line) in self.known:
            return False
        self.known.add((ns, line))
        bisect.insort(self.entries, (ns, line))
        return True


class Tenant:
    """One tenant's streams, and who tails them."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.listeners: list[tuple[Callable[[Labels], bool], list[tuple[Labels, int, str]]]] = []

    def push(self, labels: Labels, entries: list[tuple[int, str]]) -> None:
        stream = self.streams.setdefault(json.dumps(labels, sort_keys=True), Stream(labels))
        for ns, line in entries:
            if stream.add(ns, line):
                for matches, waiting in self.listeners:
                    if matches(labels):
                        waiting.append((labels, ns, line))

    def found(self, matches: Callable[[Labels], bool], start_ns: int, end_ns: int) -> Iterator[tuple[int, str, Labels]]:
        for stream in self.streams.values():
            if matches(stream.labels):
                first = bisect.bisect_left(stream.entries, (start_ns, ""))
                last = bisect.bisect_left(stream.entries, (end_ns, ""))
                for ns, line in stream.entries[first:last]:
                    yield ns, line, stream.labels


def selector(query: str) -> Callable[[Labels], bool]:
    """Read a stream selector. Raises `BadQuery`."""
    inside = query.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        raise BadQuery("parse error at line 1, col 1: syntax error: unexpected IDENTIFIER")
    inside = inside[1:-1]
    tests: list[Callable[[Labels], bool]] = []
    empty_compatible = True
    place = 0
    while place < len(inside):
        found = _MATCHER.match(inside, place)
        if not found:
            raise BadQuery(f"parse error at line 1, col {place + 2}: syntax error: unexpected characters")
        name, operator, value, _ = found.groups()
        test = _test(operator, _unquoted(value))
        empty_compatible &= test("")
        tests.append(lambda labels, name=name, test=test: test(labels.get(name, "")))  # type: ignore[misc]
        place = found.end()
    if empty_compatible:
        raise BadQuery(
            "queries require at least one regexp or equality matcher that does not have an empty-compatible value"
        )
    return lambda labels: all(test(labels) for test in tests)


def with_line(query: str) -> tuple[str, str]:
    """Split a query into its selector and the text of its one line filter ``|= "..."``; empty: there is none."""
    found = _LINE_FILTER.match(query)
    return (found.group(1), _unquoted(found.group(2))) if found else (query, "")


def _test(operator: str, value: str) -> Callable[[str], bool]:
    if operator in ("=", "!="):
        return lambda label: (label == value) == (operator == "=")
    try:
        pattern = re2.compile(f"^(?s:{value})$")
    except re2.error as error:
        raise BadQuery(f"error parsing regexp: {error}") from error
    return lambda label: bool(pattern.match(label)) == (operator == "=~")


def _unquoted(literal: str) -> str:
    """Read a string literal of Go."""
    if literal.startswith("`"):
        return literal[1:-1]
    escapes = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}

    def replaced(found: re.Match[str]) -> str:
        if found.group(1):
            return chr(int(found.group(1), 16))
        if found.group(2) not in escapes:
            raise BadQuery("parse error at line 1, col 1: invalid char escape")
        return escapes[found.group(2)]

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", replaced, literal[1:-1])


class LokiApi:
    """The routes."""

    def __init__(self, *, max_entries: int, needs_tenant: bool) -> None:
        self._tenants: dict[str, Tenant] = defaultdict(Tenant)
        self._max_entries = max_entries
        self._needs_tenant = needs_tenant

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.add_routes(
            [
                web.get("/ready", self.ready),
                web.post("/loki/api/v1/push", self.push),
                web.get("/loki/api/v1/query_range", self.query_range),
                web.get("/loki/api/v1/labels", self.labels),
                web.get("/loki/api/v1/tail", self.tail),
            ]
        )
        return app

    def add(self, labels: Labels, entries: list[tuple[int, str]]) -> None:
        """Keep entries without a request."""
        self._tenants["fake"].push(labels, entries)

    def _tenant(self, request: web.Request) -> Tenant:
        name = request.headers.get("X-Scope-OrgID", "")
        if self._needs_tenant and not name:
            raise web.HTTPUnauthorized(text="no org id")
        return self._tenants[name or "fake"]

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response(text="ready\n")

    async def push(self, request: web.Request) -> web.Response:
        tenant = self._tenant(request)
        for stream in (await request.json())["streams"]:
            tenant.push(stream["stream"], [(int(value[0]), value[1]) for value in stream["values"]])
        return web.Response(status=204)

    async def query_range(self, request: web.Request) -> web.Response:
        tenant = self._tenant(request)
        limit = int(request.query.get("limit", "100"))
        start_ns, end_ns = int(request.query["start"]), int(request.query["end"])
        if limit > self._max_entries:
            text = "max entries limit per query exceeded, limit > max_entries_limit_per_query"
            raise web.HTTPBadRequest(text=f"{text} ({limit} > {self._max_entries})")
        if end_ns - start_ns > MAX_RANGE_NS:
            hours = (end_ns - start_ns) // 3_600_000_000_000
            text = "the query time range exceeds the limit"
            raise web.HTTPBadRequest(text=f"{text} (query length: {hours}h, limit: 30d1h)")
        try:
            selects, text = with_line(request.query["query"])
            found = sorted(tenant.found(selector(selects), start_ns, end_ns), key=lambda entry: entry[0])
        except BadQuery as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        found = [entry for entry in found if text in entry[1]]
        backward = request.query.get("direction", "backward") == "backward"
        result = _by_stream((labels, ns, line) for ns, line, labels in (found[::-1] if backward else found)[:limit])
        return web.json_response(
            {"status": "success", "data": {"resultType": "streams", "result": result, "stats": {}}}
        )

    async def labels(self, request: web.Request) -> web.Response:
        names = {name for stream in self._tenant(request).streams.values() for name in stream.labels}
        return web.json_response({"status": "success", "data": sorted(names)})

    async def tail(self, request: web.Request) -> web.WebSocketResponse:
        tenant = self._tenant(request)
        try:
            matches = selector(request.query["query"])
        except BadQuery as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        socket = web.WebSocketResponse(heartbeat=30)
        await socket.prepare(request)
        earlier = tenant.found(matches, int(request.query.get("start", "0")), 1 << 63)
        waiting = [(labels, ns, line) for ns, line, labels in earlier]
        listener = (matches, waiting)
        tenant.listeners.append(listener)
        closed = asyncio.create_task(_closed(socket))
        try:
            while not closed.done():
                if waiting:
                    batch, waiting[:] = waiting[:], []
                    await socket.send_json({"streams": _by_stream(iter(batch))})
                await asyncio.wait({closed}, timeout=TAIL_EVERY_S)
        except ConnectionResetError:
            pass
        finally:
            tenant.listeners.remove(listener)
            closed.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closed
        return socket


async def _closed(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.ERROR:
            return


def _by_stream(entries: Iterator[tuple[Labels, int, str]]) -> list[dict[str, object]]:
    streams: dict[str, tuple[Labels, list[list[str]]]] = {}
    for labels, ns, line in entries:
        streams.setdefault(json.dumps(labels, sort_keys=True), (labels, []))[1].append([str(ns), line])
    return [{"stream": labels, "values": values} for labels, values in streams.values()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-entries", type=int, default=MAX_ENTRIES)
    parser.add_argument("--needs-tenant", action="store_true")
    options = parser.parse_args()
    api = LokiApi(max_entries=options.max_entries, needs_tenant=options.needs_tenant)
    app = api.app()
    web.run_app(app, host="127.0.0.1", port=options.port, print=None, access_log=None, shutdown_timeout=0.5)


if __name__ == "__main__":
    main()
