"""Jobs that print an iteration each second, and what of that relight hears.

Their processes only sleep: one writer speaks for all of them, into their files or, as a collector does, to a log store.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

import httpx

from benchmarks.training_log import iteration_lines
from recovery.detection.monitor import AttemptMonitor
from tests.stores.servers import Shipper

STEP_S = 1.0
TURNS_PER_STEP = 10
BATCH_LINES = 2_000
_ITERATION = re.compile(r"iteration +(\d+)/")


@dataclass
class Voice:
    """One job, as far as it prints."""

    job_id: str
    output: Path
    said: int = 0
    """Its last iteration."""
    muted: bool = False
    """It hangs: its log can be read, and does not grow."""


class Said(NamedTuple):
    """What one job printed."""

    job_id: str
    output: Path
    at_ns: int
    text: str


class Outlet(Protocol):
    """Where lines go. Whatever is wrong there, none is lost on the way."""

    async def take(self, lines: Sequence[Said]) -> None:
        """Bring lines on their way."""
        ...


class IntoFiles:
    """The jobs' own output files: what is opened once can be written to wherever it is moved."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}

    async def take(self, lines: Sequence[Said]) -> None:
        for line in lines:
            if line.output not in self._open:
                self._open[line.output] = os.open(line.output, os.O_WRONLY | os.O_APPEND)
            os.write(self._open[line.output], line.text.encode())

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)


class IntoStore:
    """A log store, by way of collectors that keep back what it does not take."""

    def __init__(self, shipper: Shipper, cluster: str) -> None:
        self.stopped = False
        """Whether the collectors are at rest: the store answers, and gets nothing new."""
        self._shipper = shipper
        self._cluster = cluster
        self._kept: deque[Said] = deque()

    async def take(self, lines: Sequence[Said]) -> None:
        self._kept.extend(lines)

    async def deliver_forever(self) -> None:
        """Ship what is kept, the oldest first."""
        while True:
            batch = [self._kept[index] for index in range(min(BATCH_LINES, len(self._kept)))]
            if batch and not self.stopped:
                with suppress(httpx.HTTPError):
                    await self._shipper.push([self._stream(said) for said in batch])
                    for _ in batch:
                        self._kept.popleft()
            await asyncio.sleep(STEP_S / TURNS_PER_STEP)

    def _stream(self, said: Said) -> object:
        labels = {"app": "slurm", "cluster": self._cluster, "slurm_job_id": said.job_id}
        values = [[str(said.at_ns + n), line] for n, line in enumerate(said.text.splitlines())]
        return {"stream": labels, "values": values}


class Crowd:
    """All jobs that print."""

    def __init__(self, voices: Sequence[Voice], outlet: Outlet) -> None:
        self.voices = list(voices)
        self.outlet = outlet

    @asynccontextmanager
    async def speaking(self) -> AsyncIterator[None]:
        """Let each say an iteration each `STEP_S` while the context is open, spread over the step."""
        speaker = asyncio.create_task(self._speak())
        try:
            yield
        finally:
            speaker.cancel()
            await asyncio.gather(speaker, return_exceptions=True)

    async def _speak(self) -> None:
        loop = asyncio.get_running_loop()
        due_s, turn = loop.time(), 0
        while True:
            speakers = [voice for voice in self.voices[turn % TURNS_PER_STEP :: TURNS_PER_STEP] if not voice.muted]
            for voice in speakers:
                voice.said += 1
            now_ns = time.time_ns()
            await self.outlet.take(
                [
                    Said(voice.job_id, voice.output, now_ns, iteration_lines(voice.said, step_s=STEP_S))
                    for voice in speakers
                ]
            )
            turn += 1
            due_s += STEP_S / TURNS_PER_STEP
            await asyncio.sleep(max(0.0, due_s - loop.time()))


class Ear:
    """Hears what reaches detection in this process."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, set[int]] = defaultdict(set)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear while the context is open."""
        feed = AttemptMonitor.feed

        def heard(monitor: AttemptMonitor, line: str, at: datetime, **where: Any) -> None:
            if found := _ITERATION.search(line):
                self._heard[_key(where["source"])].add(int(found.group(1)))
            feed(monitor, line, at, **where)

        with patch.object(AttemptMonitor, "feed", heard):
            yield

    def missed(self, voice: Voice, up_to: int) -> int:
        """How many of the first `up_to` iterations of a job did not reach detection, from its file or any store."""
        heard = self._heard[str(voice.output)] | self._heard[voice.job_id]
        return up_to - sum(n <= up_to for n in heard)


def _key(source: str) -> str:
    """A file's path, or the job's id of a source in a store."""
    return source if source.startswith("/") else source.rpartition(":")[2]
