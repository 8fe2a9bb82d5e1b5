from __future__ import annotations

import random
from pathlib import Path

import pytest

from recovery.detection.findings import Straggler
from recovery.detection.straggler import imbalance_emerged, slow_ranks, slowdown_of_job

from .attempt import Attempt, at, megatron

DATA = Path(__file__).parent.parent / "data" / "step-times"


def series(name: str) -> dict[str, list[float]]:
    lines = (line.split(",") for line in (DATA / name).read_text().splitlines())
    return {label: [float(value) for value in values] for label, *values in lines}


def workers(name: str) -> dict[int, list[float]]:
    return {int(worker): times for worker, times in series(name).items()}


def noisy(count: int, noise: float, level: float = 1.0, seed: int = 0) -> list[float]:
    source = random.Random(seed)
    return [level * (1 + source.gauss(0, noise)) for _ in range(count)]


@pytest.mark.parametrize("left_out", range(12))
def test_the_worker_that_becomes_slow_is_found_wherever_the_blocks_begin(left_out: int) -> None:
    times = {worker: values[left_out:] for worker, values in workers("job_1.csv").items()}
    assert [slow.rank for slow in slow_ranks(times)] == [6]


def test_workers_that_were_always_slower_hold_up_nobody() -> None:
    assert slow_ranks(workers("job_2.csv")) == ()


def test_of_many_jobs_at_most_one_in_ten_is_flagged() -> None:
    jobs = series("variation.csv")
    flagged = [name for name, variations in jobs.items() if imbalance_emerged(variations, ranks=10)]
    assert len(flagged) <= len(jobs) // 10


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.02, 0.03])
@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_five_percent_that_stays_is_found_and_not_before_it_came(noise: float, seed: int) -> None:
    before, after = noisy(300, noise, seed=seed), noisy(300, noise, level=1.05, seed=seed + 100)
    assert slowdown_of_job(before) is None
    found = slowdown_of_job(before + after)
    assert found is not None
    assert 1.03 < found.factor < 1.07


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_slowdown(noise: float, seed: int) -> None:
    assert slowdown_of_job([abs(time) for time in noisy(1_000, noise, seed=seed)]) is None


def test_a_slow_spell_that_passes_soon_is_none() -> None:
    assert slowdown_of_job(noisy(200, 0.01) + noisy(12, 0.01, level=1.5) + noisy(300, 0.01)) is None


def test_checkpoints_and_evaluations_in_between_are_none() -> None:
    times = [3.0 if n % 8 == 0 else time for n, time in enumerate(noisy(1_000, 0.01))]
    assert slowdown_of_job(times) is None


@pytest.mark.parametrize("turn", [1, 5, 8, 20, 50])
@pytest.mark.parametrize("slow", [1.1, 1.3, 2.0])
def test_a_slow_place_that_moves_from_rank_to_rank_names_none(turn: int, slow: float) -> None:
    times = {
        rank: [time * (slow if (n // turn) % 8 == rank else 1) for n, time in enumerate(noisy(1_000, 0.02, seed=rank))]
        for rank in range(8)
    }
    assert slow_ranks(times) == ()


def test_two_ranks_that_are_slow_one_after_the_other_are_not_named() -> None:
    times = {rank: noisy(600, 0.01, seed=rank) for rank in range(16)}
    times[3][150:250] = noisy(100, 0.01, level=1.4)
    times[9][350:450] = noisy(100, 0.01, level=1.4)
    assert slow_ranks(times) == ()


def test_two_ranks_that_are_slow_together_are_both_named() -> None:
    times = {rank: noisy(600, 0.01, seed=rank) for rank in range(16)}
    times[3][150:250] = noisy(100, 0.01, level=1.4)
    times[9][150:250] = noisy(100, 0.01, level=1.5)
    assert [slow.rank for slow in slow_ranks(times)] == [3, 9]


def test_a_rank_is_not_named_for_a_longer_turn_of_what_comes_to_all() -> None:
    times = {rank: noisy(600, 0.01, seed=rank) for rank in range(8)}
    for rank in range(8):
        first, turn = 100 + 50 * rank, 40 if rank == 3 else 5
        times[rank][first : first + turn] = noisy(turn, 0.01, level=1.4)
    assert slow_ranks(times) == ()


@pytest.mark.parametrize("slow", [1.05, 1.1, 1.3])
def test_the_one_rank_that_became_slower_is_named(slow: float) -> None:
    times = {rank: noisy(600, 0.01, seed=rank) for rank in range(16)}
    times[3] = noisy(200, 0.01, seed=3) + noisy(400, 0.01, level=slow, seed=4)
    (found,) = slow_ranks(times)
    assert found.rank == 3
    assert found.first >= 200
    assert found.factor == pytest.approx(slow, abs=0.03)


def test_when_most_ranks_became_slower_it_is_none_of_them() -> None:
    times = {rank: noisy(300, 0.01, seed=rank) + noisy(300, 0.01, 1.3 if rank < 7 else 1, rank) for rank in range(16)}
    assert slow_ranks(times) == ()


def test_too_little_to_compare_with_names_none() -> None:
    assert slow_ranks({}) == ()
    assert slow_ranks({0: [1.0] * 200}) == ()
    assert slow_ranks({0: [], 1: []}) == ()
    assert slow_ranks({0: [0.0, float("nan"), float("inf")] * 100, 1: [1.0] * 300}) == ()


def test_an_attempt_that_becomes_slower_is_told_once_with_the_time_it_began() -> None:
    attempt = Attempt().train(1, 150)
    assert attempt.monitor.slowdown() is None
    for n in range(151, 200):
        attempt.wait(1.06).say(megatron(n, step_ms=1_060))
    found = attempt.monitor.slowdown()
    assert isinstance(found, Straggler)
    assert at(150) < found.since < at(165)
    assert (found.usual_s, found.now_s) == (1.0, 1.06)
    assert attempt.monitor.slowdown() == found
    attempt.monitor.take(found)
    for n in range(200, 400):
        attempt.wait(1.06).say(megatron(n, step_ms=1_060))
        assert attempt.monitor.slowdown() is None
    assert attempt.findings == []


def test_steps_without_a_stated_time_are_timed_by_their_arrival() -> None:
    attempt = Attempt()
    for n in range(1, 150):
        attempt.wait(20 if n < 100 else 24, every_s=2).say(f"step {n} | loss 2.1")
    found = attempt.monitor.slowdown()
    assert found is not None
    assert (found.usual_s, found.now_s) == (20, 24)


def test_a_batch_that_grows_takes_longer_and_is_no_slowdown() -> None:
    attempt = Attempt()
    for n in range(1, 300):
        grown = n > 150
        attempt.wait(2.0 if grown else 1.0)
        attempt.say(megatron(n, step_ms=2_000 if grown else 1_000, batch=1024 if grown else 512), "a line of its own")
        assert attempt.monitor.slowdown() is None
    for n in range(300, 450):
        attempt.wait(2.4).say(megatron(n, step_ms=2_400, batch=1024))
    found = attempt.monitor.slowdown()
    assert found is not None
    assert (found.usual_s, found.now_s) == (2.0, 2.4)
