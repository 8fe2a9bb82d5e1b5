"""Stands between Slurm's commands and slurmctld, and loses, delays and doubles what goes through.

A command opens one connection, sends one request and waits for one answer. What it sends twice slurmctld takes once:
munge refuses a credential that it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from activities.scheduler.simulated_wire import Fault, Inject
from workers.simulator.injection import Injector

QUIET_S = 0.05
"""A request is whole once nothing has come for so long."""
PATIENCE_S = 60.0
CHUNK_BYTES = 65_536


class Proxy:
    """One port of this host, leading to another."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._injector = Injector(Inject())
        self.port = 0

    def inject(self, settings: Inject) -> None:
        """Let faults happen from now on; none where `settings` has no rates."""
        self._injector = Injector(settings)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._carry(reader, writer)
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault, delay_s = self._injector.draw(), self._injector.delay_s
        request = await _whole(reader)
        if fault is Fault.LOSE_REQUEST:
            return
        if fault is Fault.DELAY_REQUEST:
            await asyncio.sleep(delay_s)
        answer = await self._ask(request)
        if fault is Fault.DUPLICATE:
            await self._ask(request)
        if fault is Fault.DELAY_ANSWER:
            await asyncio.sleep(delay_s)
        if fault is not Fault.LOSE_ANSWER:
            writer.write(answer)
            await writer.drain()

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read(-1)
        finally:
            writer.close()


async def _whole(reader: asyncio.StreamReader) -> bytes:
    request = await reader.read(CHUNK_BYTES)
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(QUIET_S):
                more = await reader.read(CHUNK_BYTES)
            if not more:
                break
            request += more
    return request


@asynccontextmanager
async def proxy(target_port: int) -> AsyncIterator[Proxy]:
    """A proxy that listens on a port of its own."""
    through = Proxy(target_port)
    server = await asyncio.start_server(through.converse, "127.0.0.1", 0)
    through.port = server.sockets[0].getsockname()[1]
    try:
        yield through
    finally:
        server.close()
