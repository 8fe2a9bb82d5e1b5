"""What stands between relight and the simulated cluster: counts what is asked, and breaks when told to."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from activities.scheduler.simulated_wire import MAX_LINE_BYTES


class Line:
    """One socket that leads to another."""

    def __init__(self, behind: Path) -> None:
        self.asked: Counter[str] = Counter()
        """How many questions there were, by verb."""
        self.says: bytes | None = None
        """What every question is answered with; None: what the cluster says."""
        self._behind = behind

    @asynccontextmanager
    async def listening(self, socket: Path) -> AsyncIterator[None]:
        """Answer on `socket` while the context is open."""
        server = await asyncio.start_unix_server(self._pass_on, socket, limit=MAX_LINE_BYTES)
        try:
            yield
        finally:
            server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = await reader.readline()
            self.asked[json.loads(question)["verb"]] += 1
            writer.write(await self._answer(question) if self.says is None else self.says)
            await writer.drain()
        finally:
            writer.close()

    async def _answer(self, question: bytes) -> bytes:
        answers, questions = await asyncio.open_unix_connection(self._behind, limit=MAX_LINE_BYTES)
        try:
            questions.write(question)
            return await answers.readline()
        finally:
            questions.close()
