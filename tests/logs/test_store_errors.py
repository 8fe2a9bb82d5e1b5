"""Whatever a store answers, or does not: a state with a message that names the store and the remedy, never an error."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from activities.logs.protocol import Chunk, LogCursor, SourceState, StorePosition
from activities.logs.stores.source import StoreLogs
from tests.stores.servers import KINDS, RunningStore, free_port

JOB_ID = "4711"
HTML = b"<!DOCTYPE html><html><title>Sign in</title></html>"


def answer(status: int, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*head, "Connection: close", "", ""]).encode() + body


@asynccontextmanager
async def answering(kind: str, said: bytes, asked: list[bytes] | None = None) -> AsyncIterator[RunningStore]:
    """A server that says the same to everybody; nothing at all: it keeps them waiting."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            request = await reader.read(65_536)
            if asked is not None:
                asked.append(request)
            if not said:
                await reader.read()
            writer.write(said)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield RunningStore(kind, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()


async def blindness(store: RunningStore, **changes: Any) -> Chunk:
    """What a watch gets told within some seconds."""
    source = StoreLogs(*store.client(**{"timeout_s": 0.5, "tail": False, **changes}))
    now_ns = time.time_ns()
    cursor = LogCursor(source=f"{store.kind}:{JOB_ID}", store=StorePosition(begin_ns=now_ns, since_ns=now_ns))
    try:
        async with asyncio.timeout(20):
            while True:
                chunk = await source.read(cursor)
                if chunk.state is not SourceState.FRESH:
                    break
                await asyncio.sleep(0.05)
        stretch = await source.read_range(cursor, 1_000)
        assert (stretch.state, stretch.lines) == (SourceState.UNREADABLE, [])
        assert (await source.end(cursor.source)).store is not None
        return chunk
    finally:
        await source.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer(401, b"no credentials"), ["HTTP 401", "no credentials", "`access`"]),
        (answer(403), ["HTTP 403", "`tenant`"]),
        (answer(404, b"404 page not found"), ["HTTP 404", "`url`"]),
        (answer(400, b"parse error at line 1, col 7"), ["HTTP 400", "parse error", "`selector`"]),
        (answer(302, b"", "Location: https://sso.example.org"), ["HTTP 302", "`url`"]),
        (answer(413, b"too large"), ["HTTP 413"]),
        (answer(429, b"slow down", "Retry-After: 7"), ["HTTP 429", "again in 7 s", "`poll_interval_s`"]),
        (answer(500, b"rpc error"), ["HTTP 500", "rpc error", "own log"]),
        (answer(503), ["HTTP 503"]),
        (answer(200, HTML, "Content-Type: text/html"), ["HTML", "proxy", "`url`"]),
        (answer(200, HTML), ["HTML", "`url`"]),
        (answer(200, b'{"data": {"resultType": "matrix"}}'), ["not what its API says", "`url`"]),
        (answer(200, b"[1, 2"), ["not what its API says"]),
        (answer(200, b'{"status":"success"', length=1_000), ["no answer", "`url`"]),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ["no answer", "`url`"]),
        (b"", ["no answer within 0.5 s"]),
    ],
    ids=lambda value: value[:16].decode(errors="replace").strip() if isinstance(value, bytes) else "",
)
async def test_a_bad_answer_is_blindness_with_a_remedy(kind: str, said: bytes, words: list[str]) -> None:
    patience = {"timeout_s": 10.0} if said else {}
    async with answering(kind, said) as store:
        chunk = await blindness(store, **patience)
    assert (chunk.state, chunk.lines, chunk.caught_up) == (SourceState.UNREADABLE, [], False)
    assert chunk.detail.startswith(f"{kind} at {store.url}")
    assert [word for word in words if word not in chunk.detail] == []
    assert chunk.detail.isprintable()


async def test_nobody_listening_and_no_such_host_are_blindness() -> None:
    assert "check `url`" in (await blindness(RunningStore("loki", f"http://127.0.0.1:{free_port()}"))).detail
    assert "check `url`" in (await blindness(RunningStore("loki", "http://no-such-host.invalid"))).detail


async def test_a_store_without_tls_where_tls_is_expected_is_named() -> None:
    async with answering("loki", answer(200)) as store:
        chunk = await blindness(RunningStore("loki", store.url.replace("http:", "https:")))
    assert "TLS fails" in chunk.detail


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({"bearer_token_file": "/no/such/token"}, "a secret of `access` can't be read"),
        ({"username": "me", "password_file": "/no/such/password"}, "a secret of `access` can't be read"),
        ({"ca_file": "/no/such/authority.pem"}, "a certificate of `access` can't be used"),
    ],
)
async def test_a_secret_that_is_not_there_is_named(access: dict[str, str], words: str) -> None:
    async with answering("loki", answer(200)) as store:
        assert words in (await blindness(store, access=access)).detail


@pytest.mark.parametrize("kind", KINDS)
async def test_who_we_are_stands_in_the_headers_and_in_no_message(kind: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-token\n")
    asked: list[bytes] = []
    tenant = "team-a" if kind == "loki" else "12:34"
    async with answering(kind, answer(401, b"who?"), asked) as store:
        chunk = await blindness(store, tenant=tenant, access={"bearer_token_file": str(tmp_path / "token")})
    head = asked[0].lower()
    assert b"authorization: bearer s3cret-token\r\n" in head
    wanted = [b"x-scope-orgid: team-a"] if kind == "loki" else [b"accountid: 12", b"projectid: 34"]
    assert [line for line in wanted if line not in head] == []
    assert "s3cret" not in chunk.detail


async def test_a_user_and_password_are_sent(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pä:ss\n")
    asked: list[bytes] = []
    async with answering("loki", answer(401), asked) as store:
        await blindness(store, access={"username": "me", "password_file": str(tmp_path / "password")})
    assert b"Authorization: Basic bWU6cMOkOnNz\r\n" in asked[0] or b"authorization: Basic bWU6cMOkOnNz\r\n" in asked[0]


async def test_a_store_that_stays_broken_is_asked_no_more_often_than_one_that_is_well_and_told_of_once() -> None:
    asked: list[bytes] = []
    with capture_logs() as told:
        async with answering("loki", answer(500, b"broken"), asked) as store:
            source = StoreLogs(*store.client(tail=False, poll_interval_s=2.0))
            await reading_for(source, 6.0)
            await source.close()
    assert 2 <= len(asked) <= 4
    assert [entry["event"] for entry in told] == ["the log store can't be read"]


async def test_a_store_that_asks_for_a_pause_gets_it() -> None:
    asked: list[bytes] = []
    async with answering("loki", answer(429, b"", "Retry-After: 30"), asked) as store:
        source = StoreLogs(*store.client(tail=False, poll_interval_s=0.5))
        await reading_for(source, 4.0)
        await source.close()
    assert len(asked) == 1


async def reading_for(source: StoreLogs, seconds: float) -> None:
    now_ns = time.time_ns()
    cursor = LogCursor(source=f"loki:{JOB_ID}", store=StorePosition(begin_ns=now_ns, since_ns=now_ns))
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        cursor = (await source.read(cursor)).cursor
        await asyncio.sleep(0.1)
