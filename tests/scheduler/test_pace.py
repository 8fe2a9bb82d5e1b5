"""A transport never calls faster than it may, and no call is lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.command import Finished
from activities.scheduler.pace import BURST_S, Pace, PacedRunner


class Time:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr("activities.scheduler.pace.asyncio.sleep", self.sleep)

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@given(
    rate=st.integers(1, 50),
    pauses_s=st.lists(st.floats(0, 5), min_size=1, max_size=120),
)
def test_no_stretch_of_time_has_more_calls_than_a_burst_and_the_rate(rate: int, pauses_s: list[float]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        time = Time(monkeypatch)
        called_at_s = asyncio.run(_called(Pace(rate, clock_s=time), time, pauses_s))

    assert len(called_at_s) == len(pauses_s)
    for first, began_s in enumerate(called_at_s):
        for count, ended_s in enumerate(called_at_s[first:], 1):
            assert count <= BURST_S * rate + rate * (ended_s - began_s) + 1 + 1e-6


async def _called(pace: Pace, time: Time, pauses_s: list[float]) -> list[float]:
    called_at_s = []
    for pause_s in pauses_s:
        time.now_s += pause_s / 100
        await pace.turn()
        called_at_s.append(time.now_s)
    return called_at_s


async def test_after_a_burst_each_call_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = Pace(2, clock_s=time)

    for _ in range(int(2 * BURST_S)):
        await pace.turn()
    assert time.now_s == 0
    for _ in range(10):
        await pace.turn()

    assert time.now_s == pytest.approx(5)


async def test_commands_take_their_turns_and_come_back_as_they_are() -> None:
    class Echo:
        async def run(self, *command: str, stdin: str = "") -> Finished:
            return Finished(0, " ".join(command), stdin)

    paced = PacedRunner(Echo(), Pace(1_000))

    assert await paced.run("squeue", "--json", stdin="x") == Finished(0, "squeue --json", "x")
