"""A webhook on this host: a real HTTP server that keeps what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

SECRET_PATH = "/services/T0001/B0001/verysecret"


class Webhook:
    """Answers every request with one status, and keeps what it got."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[dict[str, Any]] = []
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Webhook]:
        server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{SECRET_PATH}"
        try:
            yield self
        finally:
            server.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        self.bodies.append(json.loads(await reader.readexactly(int(length))))
        writer.write(f"HTTP/1.1 {self.status} X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
