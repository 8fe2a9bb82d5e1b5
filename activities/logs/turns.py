"""Blocking reads of many files on few threads, such that a file system that hangs harms nobody else.

Reads of one file system that are asked for at about the same time share one turn of a thread: at two reads a second for
each of some hundred jobs, changing threads costs far more than reading. A turn that does not end in time is left behind
with the file that it is stuck in; nobody asks for that file until it returns. A file system with several such turns is
left alone altogether.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

GATHER_S = 0.02
MOST_STUCK = 3
_THREADS = 64
_MOUNTS_AGE_S = 60.0

Answer = TypeVar("Answer")


@dataclass
class _Question(Generic[Answer]):
    source: str
    read: Callable[[], Answer]
    answer: asyncio.Future[Answer | None]


@dataclass
class _FileSystem(Generic[Answer]):
    waiting: list[_Question[Answer]] = field(default_factory=list)
    turn: asyncio.Task[None] | None = None
    stuck: dict[str, Future[None]] = field(default_factory=dict)

    def is_stuck(self, source: str) -> bool:
        """Whether it is no use to read `source` now."""
        self.stuck = {stuck: future for stuck, future in self.stuck.items() if not future.done()}
        return source in self.stuck or len(self.stuck) >= MOST_STUCK


class Turns(Generic[Answer]):
    """Runs reads in turns, one at a time for each file system."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="log-files")
        self._file_systems: dict[str, _FileSystem[Answer]] = {}
        self._mounts = _Mounts()

    async def ask(self, source: str, read: Callable[[], Answer], timeout_s: float) -> Answer | None:
        """Run `read` on a thread; None when the file system of `source` does not answer."""
        file_system = self._file_systems.setdefault(self._mounts.of(source), _FileSystem())
        if file_system.is_stuck(source):
            return None
        question = _Question(source, read, asyncio.get_running_loop().create_future())
        file_system.waiting.append(question)
        if file_system.turn is None or file_system.turn.done():
            file_system.turn = asyncio.create_task(self._take_turns(file_system, timeout_s))
        return await question.answer

    def close(self) -> None:
        """Give up the threads; one that waits for a dead file system is left behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _take_turns(self, file_system: _FileSystem[Answer], timeout_s: float) -> None:
        await asyncio.sleep(GATHER_S)
        while file_system.waiting:
            questions, file_system.waiting = file_system.waiting, []
            await self._take_turn(file_system, questions, timeout_s)

    async def _take_turn(
        self, file_system: _FileSystem[Answer], questions: list[_Question[Answer]], timeout_s: float
    ) -> None:
        answers: list[Answer] = []
        abandoned = threading.Event()
        turn = self._threads.submit(_answer_all, questions, answers, abandoned)
        await asyncio.wait({asyncio.wrap_future(turn)}, timeout=timeout_s)
        abandoned.set()
        answered = len(answers)
        for question, answer in zip(questions, answers[:answered], strict=False):
            _settle(question, answer)
        if answered == len(questions):
            return
        if turn.done():
            questions[answered].answer.set_exception(
                turn.exception() or RuntimeError("the turn ended without an answer")
            )
        elif not turn.cancel():
            file_system.stuck[questions[answered].source] = turn
        for question in questions[answered:]:
            _settle(question, None)


def _settle(question: _Question[Answer], answer: Answer | None) -> None:
    """Answer, unless the asker has gone or was told of an error."""
    if not question.answer.done():
        question.answer.set_result(answer)


def _answer_all(questions: list[_Question[Answer]], answers: list[Answer], abandoned: threading.Event) -> None:
    for question in questions:
        if abandoned.is_set():
            return
        answers.append(question.read())


class _Mounts:
    """Tells by its path alone on which file system a file is; asking the file system itself could hang."""

    def __init__(self) -> None:
        self._points: tuple[str, ...] = ("/",)
        self._read_at = float("-inf")

    def of(self, path: str) -> str:
        """Return the mount point above `path`; a symbolic link to another file system is not followed."""
        if time.monotonic() - self._read_at > _MOUNTS_AGE_S:
            self._read_at = time.monotonic()
            self._points = _mount_points()
        return next((point for point in self._points if path == point or path.startswith(point.rstrip("/") + "/")), "/")


def _mount_points() -> tuple[str, ...]:
    """Read the mount points, the longest first; only ``/`` where the system does not tell."""
    try:
        table = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ("/",)
    points = {fields[1].replace("\\040", " ") for line in table.splitlines() if len(fields := line.split(" ")) > 1}
    return tuple(sorted(points, key=len, reverse=True))
