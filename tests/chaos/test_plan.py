"""A run is a function of its seed, and the seeds together try everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.blows import ON_JOBS, ON_THE_HOUSE
from tests.chaos.kinds import JobKind
from tests.chaos.plan import WARM_UP_S, make_plan

SEEDS = st.integers(min_value=0, max_value=2**32)


@given(seed=SEEDS, dense=st.integers(min_value=0, max_value=6))
def test_a_seed_gives_the_same_run_again(seed: int, dense: int) -> None:
    assert make_plan(seed, dense=dense) == make_plan(seed, dense=dense)


@given(seed=SEEDS, dense=st.integers(min_value=0, max_value=6))
def test_every_run_has_jobs_that_fail_in_all_known_ways(seed: int, dense: int) -> None:
    jobs = make_plan(seed, window_s=90, dense=dense).jobs
    assert {job.kind for job in jobs} == set(JobKind)
    assert [job.place for job in jobs] == list(range(len(jobs)))


@given(seed=SEEDS, window_s=st.floats(min_value=10, max_value=120))
def test_the_house_is_hit_within_the_window_and_its_answers_fail_at_most_half_the_time(
    seed: int, window_s: float
) -> None:
    plan = make_plan(seed, window_s=window_s)
    on_the_house = [blow.at_s for blow in plan.blows if blow.job < 0]
    assert all(WARM_UP_S <= at_s <= window_s for at_s in on_the_house)
    assert sum(plan.faults.values()) <= 0.5


def test_with_every_kind_asked_for_no_kind_is_missing() -> None:
    kinds = {*ON_THE_HOUSE, *(hits.blow for hits in ON_JOBS.values())}
    for seed in range(20):
        plan = make_plan(seed, every_kind=True)
        assert {blow.kind for blow in plan.blows} == kinds
        assert plan.faults
        assert plan.ambushes
        assert all(plan.lives_s)


def test_some_seeds_leave_each_kind_of_blow_out() -> None:
    plans = [make_plan(seed) for seed in range(100)]
    for kind in ON_THE_HOUSE:
        hit = [any(blow.kind is kind for blow in plan.blows) for plan in plans]
        assert any(hit)
        assert not all(hit)
    assert not all(plan.faults for plan in plans)
    assert not all(any(plan.lives_s) for plan in plans)


def test_a_dense_run_kills_each_of_its_workers_several_times_a_minute_and_has_new_jobs_all_the_time() -> None:
    plan = make_plan(1, window_s=180, dense=4)
    assert len(plan.lives_s) == 4
    assert all(len(lives) > 180 / 9 for lives in plan.lives_s)
    assert max(job.at_s for job in plan.jobs) > 120
