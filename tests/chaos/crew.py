"""Processes of relight that are kept alive, as systemd would, and may be killed and stopped at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.records import Outage, Party

LOOK_EVERY_S = 0.03
START_PATIENCE_S = 90.0


class Nursery:
    """The process that relight's processes are forked from."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    async def fork(self, words: tuple[str, ...], log: Path) -> int:
        """Start ``relight`` with `words` and return its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._asking:
            order = {"words": words, "log": str(log)}
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            return int(await self._process.stdout.readline())


@asynccontextmanager
async def nursery(config: Path, mutant: str = "") -> AsyncIterator[Nursery]:
    """A nursery for the settings in `config`; what came from it dies with it."""
    with (config.parent / "nursery.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.nursery", str(config), *([mutant] if mutant else [])),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        yield Nursery(process)
    finally:
        process.kill()
        await process.wait()


class Kept:
    """One process, started again whenever it has ended. `outages` gets every time in which it did not serve."""

    def __init__(self, party: Party, words: tuple[str, ...], log: Path, *, serves: str, outages: list[Outage]) -> None:
        """`serves`: what it logs once it does its work."""
        self.log = log
        self._party = party
        self._words = words
        self._serves = serves
        self._outages = outages
        self._pid = 0
        self._log_bytes = 0
        self._serving = asyncio.Event()
        self._down_since = datetime.now(UTC)
        self._struck = asyncio.Lock()

    async def keep(self, nursery: Nursery) -> None:
        """Keep it alive until cancelled, then end it in good order."""
        try:
            while True:
                async with self._struck:
                    if not self._lives():
                        await self._start(nursery)
                if not self._serving.is_set() and self._says_that_it_serves():
                    self._note_outage(self._down_since)
                    self._serving.set()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._end()

    async def serving(self) -> None:
        """Wait until it serves."""
        async with asyncio.timeout(START_PATIENCE_S):
            await self._serving.wait()

    async def kill(self, away_s: float = 0.0) -> bool:
        """SIGKILL it and start it again after `away_s`; False when it was dead already."""
        async with self._struck:
            if not self._lives():
                return False
            self._down_since = datetime.now(UTC)
            self._serving.clear()
            self._signal(signal.SIGKILL)
            await self._until(lambda: not self._lives())
            await asyncio.sleep(away_s)
            return True

    async def stop_clock(self, for_s: float) -> None:
        """Let it stand still; meanwhile nobody starts another one."""
        async with self._struck:
            since = datetime.now(UTC)
            self._signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(for_s)
            finally:
                self._signal(signal.SIGCONT)
            self._note_outage(since, fatal=False)

    async def _start(self, nursery: Nursery) -> None:
        if self._serving.is_set():  # it ended by itself
            self._down_since = datetime.now(UTC)
            self._serving.clear()
        self._log_bytes = self.log.stat().st_size if self.log.exists() else 0
        self._pid = await nursery.fork(self._words, self.log)

    async def _end(self) -> None:
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(25):
                await self._until(lambda: not self._lives())
        self._signal(signal.SIGKILL)

    def _says_that_it_serves(self) -> bool:
        with suppress(FileNotFoundError), self.log.open("rb") as log:
            log.seek(self._log_bytes)
            return self._serves.encode() in log.read()
        return False

    def _note_outage(self, since: datetime, *, fatal: bool = True) -> None:
        self._outages.append(Outage(party=self._party, since=since, until=datetime.now(UTC), fatal=fatal))

    def _lives(self) -> bool:
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        """Send a signal and say whether there was somebody to get it."""
        if not self._pid:
            return False
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return False
        return True

    @staticmethod
    async def _until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(LOOK_EVERY_S)
