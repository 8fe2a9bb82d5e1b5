"""A lasting slow-down is reported once, while training goes on."""

from __future__ import annotations

from activities.findings import Slowed
from tests.watch.conftest import StartWatch
from tests.watch.scripted import JobUnderWatch


def timed(n: int, step_ms: float) -> str:
    return (
        f" [2026-03-01 08:00:00] iteration {n:8d}/{9_999:8d} | consumed samples: {n * 256:12d} "
        f"| elapsed time per iteration (ms): {step_ms:.1f} | lm loss: 2.345678E+00 |"
    )


async def test_a_run_that_became_slower_for_good_is_reported_once(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    job.writes(*[timed(n, 1_000) for n in range(1, 151)], *[timed(n, 1_150) for n in range(151, 301)])
    slowed = await watch.finding()
    assert isinstance(slowed, Slowed)
    assert slowed.summary == "15% slower: 1.15 s an iteration, before 1 s"

    watch = start(job.order_after(job.order(), slowed))
    job.writes(*[timed(n, 1_150) for n in range(301, 400)])
    assert await watch.silent_for(0.4)


async def test_a_run_that_keeps_its_pace_is_not_reported(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    job.writes(*[timed(n, 1_000 + 10 * (n % 3)) for n in range(1, 301)])
    assert await watch.silent_for(0.5)
