from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from activities.logs.turns import MOST_STUCK, Turns


@pytest.fixture
async def turns() -> AsyncIterator[Turns[str]]:
    source = Turns[str]()
    yield source
    source.close()


@pytest.fixture
def dead() -> Iterator[threading.Event]:
    """A file that answers only when this is set; set at the end, so that no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


def wait_for(event: threading.Event) -> str:
    event.wait(20)
    return "late"


async def test_reads_asked_for_together_are_all_answered(turns: Turns[str]) -> None:
    answers = await asyncio.gather(*(turns.ask(f"/proc/{n}", partial("answer {}".format, n), 5) for n in range(50)))
    assert answers == [f"answer {n}" for n in range(50)]


async def test_a_file_that_does_not_answer_is_asked_once_and_again_after_it_has_returned(
    turns: Turns[str], dead: threading.Event
) -> None:
    asked: list[str] = []

    def read() -> str:
        asked.append("read")
        return wait_for(dead)

    assert [await turns.ask("/proc/dead", read, 0.05) for _ in range(3)] == [None, None, None]
    assert len(asked) == 1
    dead.set()
    await asyncio.sleep(0.1)
    assert await turns.ask("/proc/dead", read, 0.05) == "late"


async def test_a_file_that_does_not_answer_delays_the_others_once(turns: Turns[str], dead: threading.Event) -> None:
    stuck = asyncio.create_task(turns.ask("/proc/dead", lambda: wait_for(dead), 0.2))
    await asyncio.sleep(0.1)
    begin = time.monotonic()
    assert await turns.ask("/proc/other", lambda: "well", 5) == "well"
    assert time.monotonic() - begin < 1
    assert await stuck is None
    begin = time.monotonic()
    assert await turns.ask("/proc/other", lambda: "well", 5) == "well"
    assert time.monotonic() - begin < 0.15


async def test_a_file_system_with_several_stuck_files_is_left_alone_and_another_is_not(
    turns: Turns[str], dead: threading.Event
) -> None:
    for n in range(MOST_STUCK):
        await turns.ask(f"/proc/dead-{n}", lambda: wait_for(dead), 0.02)
    assert await turns.ask("/proc/other", lambda: "well", 5) is None
    assert await turns.ask("/etc/other", lambda: "well", 5) == "well"


async def test_a_read_that_raises_tells_its_asker_and_nobody_else(turns: Turns[str]) -> None:
    def broken() -> str:
        raise RuntimeError("a mistake of ours")

    first, second = await asyncio.gather(
        turns.ask("/proc/1", lambda: "well", 5), turns.ask("/proc/2", broken, 5), return_exceptions=True
    )
    assert first == "well"
    assert isinstance(second, RuntimeError)
