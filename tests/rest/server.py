"""An HTTP server that answers as it is told, down to the byte, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from activities.scheduler.rest_client import RestClient, RestServer
from activities.scheduler.rest_token import TokenKeeper

PATHS_OF_26_05 = (
    *(f"/slurm/v0.0.{number}/{path}" for number in (42, 43, 44, 45) for path in ("jobs/", "job/{job_id}", "nodes/")),
    "/slurm/v0.0.45/jobs/requeue",
)


PING = {
    "pings": [
        {"hostname": "ctl1", "responding": True, "primary": True},
        {"hostname": "ctl2", "responding": False, "primary": False},
    ],
    "meta": {"slurm": {"release": "26.05.5", "cluster": "alpha"}},
}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: Any


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ScriptedServer:
    """Answers everything with `answer`, but the question for versions with `paths`, and pings as they should be."""

    answer: Answer
    paths: tuple[str, ...] = PATHS_OF_26_05
    asked: list[Asked] = field(default_factory=list)
    """All but the questions for versions, and pings."""
    asked_for_versions: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                if request.path == "/openapi/v3":
                    self.asked_for_versions += 1
                    await said({"paths": dict.fromkeys(self.paths)})(request, writer)
                elif request.path.endswith("/ping"):
                    await said(PING)(request, writer)
                else:
                    self.asked.append(request)
                    await self.answer(request, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """Serve `answer` on 127.0.0.1."""
    server = ScriptedServer(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@asynccontextmanager
async def transport(
    server: ScriptedServer,
    tokens: TokenKeeper | None = None,
    *,
    timeout_s: float = 20,
    max_answer_bytes: int = 1_000_000,
) -> AsyncIterator[SlurmRest]:
    """The transport, speaking to `server`: as root, or as whom the tokens name."""
    user = "" if tokens else "root"
    address = RestServer(f"http://127.0.0.1:{server.port}", cluster="alpha", user=user)
    client = RestClient(address, tokens, timeout_s=timeout_s, max_answer_bytes=max_answer_bytes)
    try:
        yield SlurmRest(RestApi(client))
    finally:
        await client.close()


def said(content: Any, *, status: int = 200) -> Answer:
    """Answer with JSON."""
    return said_bytes(json.dumps(content).encode(), status=status, kind="application/json")


def said_bytes(content: bytes, *, status: int = 200, kind: str, length: int | None = None) -> Answer:
    """Answer with `content`; `length`: what Content-Length says where that is not true."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        size = len(content) if length is None else length
        writer.write(f"HTTP/1.1 {status} WORD\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n".encode())
        writer.write(content)
        await writer.drain()
        if length is not None:
            writer.close()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Give one answer after another, and the last one from then on."""
    left = list(answers)

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(asked, writer)

    return answer


async def hung_up(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Close the connection without a word."""
    writer.close()


async def silence(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.sleep(3_600)


async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Begin an answer, and never end it."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Asked | None:
    line = (await reader.readline()).decode()
    if not line:
        return None
    method, path, _ = line.split()
    headers = {}
    while header := (await reader.readline()).decode().strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(body) if body else None)
