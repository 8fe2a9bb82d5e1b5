"""What goes through the proxy is lost, late and doubled as it was told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from activities.scheduler.simulated_wire import Fault, Inject
from tests.chaos.proxy import Proxy, proxy

DELAY_S = 0.3


@asynccontextmanager
async def a_controller_behind(heard: list[bytes]) -> AsyncIterator[Proxy]:
    """A server that answers each request with its bytes in capitals, and a proxy before it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.write(heard[-1].upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with proxy(server.sockets[0].getsockname()[1]) as through:
        yield through
    server.close()


async def ask(through: Proxy) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", through.port)
    writer.write(b"squeue")
    try:
        return await reader.read(-1)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("fault", "answered", "taken"),
    [
        (Fault.LOSE_REQUEST, b"", 0),
        (Fault.LOSE_ANSWER, b"", 1),
        (Fault.DUPLICATE, b"SQUEUE", 2),
        (Fault.DELAY_REQUEST, b"SQUEUE", 1),
        (Fault.DELAY_ANSWER, b"SQUEUE", 1),
    ],
)
async def test_each_fault_is_what_it_says(fault: Fault, answered: bytes, taken: int) -> None:
    heard: list[bytes] = []
    async with a_controller_behind(heard) as through:
        through.inject(Inject(rates={fault: 1.0}, delay_s=DELAY_S))
        asked_at = monotonic()
        assert await ask(through) == answered
        took_s = monotonic() - asked_at
    assert len(heard) == taken
    assert took_s >= DELAY_S or fault not in (Fault.DELAY_REQUEST, Fault.DELAY_ANSWER)


async def test_without_a_fault_the_answer_is_the_controllers() -> None:
    heard: list[bytes] = []
    async with a_controller_behind(heard) as through:
        assert await ask(through) == b"SQUEUE"
    assert heard == [b"squeue"]
