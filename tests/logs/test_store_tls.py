from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from activities.logs.protocol import Chunk, LogCursor, SourceState, StorePosition
from activities.logs.stores.source import StoreLogs
from tests.logs.conformance import at_least, reads, texts
from tests.rest.test_tls import Authority, tls_of
from tests.stores.loki_api import LokiApi
from tests.stores.servers import RunningStore


@asynccontextmanager
async def serving(tls: ssl.SSLContext, job_id: str, line: str) -> AsyncIterator[RunningStore]:
    """A store behind TLS with one line of one job."""
    api = LokiApi(max_entries=5_000, needs_tenant=False)
    api.add({"slurm_job_id": job_id, "cluster": "alpha"}, [(time.time_ns(), line)])
    runner = web.AppRunner(api.app(), shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield RunningStore("loki", f"https://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


def cursor() -> LogCursor:
    begin_ns = time.time_ns() - 10_000_000_000
    return LogCursor(source="loki:1", store=StorePosition(begin_ns=begin_ns, since_ns=begin_ns))


async def test_both_ways_in_go_through_mutual_tls(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    client = ours.sign("relight")
    access = {
        "ca_file": str(theirs.cert),
        "client_cert_file": str(client.cert),
        "client_key_file": str(client.key),
    }
    async with serving(tls_of(theirs.sign("store"), clients_of=ours.cert), "1", "through TLS") as store:
        source = StoreLogs(*store.client(access=access))
        lines, position = await reads(source, cursor(), at_least(1))
        assert texts(lines) == ["through TLS"]
        await reads(source, position, lambda lines, chunk: source.reader.is_pushed("1"))
        await source.close()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("nobody vouches", "`access.ca_file`"), ("no certificate of ours", "`access.client_cert_file`")],
)
async def test_tls_that_fails_is_blindness_with_a_remedy(wrong: str, words: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    clients_of = None if wrong == "nobody vouches" else authority.cert
    access = {} if wrong == "nobody vouches" else {"ca_file": str(authority.cert)}
    async with serving(tls_of(authority.sign("store"), clients_of=clients_of), "1", "x") as store:
        source = StoreLogs(*store.client(access=access, tail=False))
        chunks: list[Chunk] = []
        await reads(
            source, cursor(), lambda lines, chunk: chunks.append(chunk) or chunk.state is SourceState.UNREADABLE
        )
        await source.close()
    assert words in chunks[-1].detail
