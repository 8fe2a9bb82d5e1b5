"""A job is submitted anew exactly once, whatever becomes of our calls and of the worker that makes them."""

from __future__ import annotations

from typing import Any

import pytest

from activities.scheduler import resubmission, resubmit
from activities.scheduler.lineage import read_lineage
from activities.scheduler.protocol import JobState
from activities.scheduler.resubmission import Sight
from recovery.model import Disposition, Reconciliation
from tests.resubmission.world import OLD, World

SEEDS = range(1, 160)


async def check(seed: int, *, running: bool) -> Reconciliation:
    world = World(seed, running=running)
    outcome = await world.play()
    told = f"seed {seed}: {outcome}; {[(job.job_id, job.state, job.hold) for job in world.submitted]}"
    assert len(world.started) <= 1, f"two jobs ran for one order; {told}"
    if outcome.disposition is Disposition.CONVERGED:
        assert world.started == {outcome.resubmitted_as}, told
    else:
        assert not world.started, f"given up, and a job runs; {told}"
    if world.disturbed == "cancelled":
        assert not world.started, f"the owner cancelled the job, and it came back; {told}"
    assert world.old_state is not JobState.RUNNING or not world.started, told
    return outcome


async def test_in_quiet_times_the_new_job_is_held_until_it_is_the_only_one_and_carries_its_line() -> None:
    world = World(0, running=False)
    outcome = await world.play()
    [new] = world.submitted

    assert (outcome.disposition, outcome.resubmitted_as) == (Disposition.CONVERGED, new.job_id)
    assert new.excluded_nodes == ("node03",)
    lineage = read_lineage(new.comment)
    assert lineage is not None
    assert (lineage.of, lineage.count, lineage.order) == (OLD, 1, world.advice.key)


@pytest.mark.parametrize("running", [False, True], ids=["ended", "still runs"])
async def test_at_most_one_new_job_ever_runs_whatever_is_lost_late_or_doubled(running: bool) -> None:
    outcomes = [await check(seed, running=running) for seed in SEEDS]

    converged = [outcome for outcome in outcomes if outcome.disposition is Disposition.CONVERGED]
    assert len(converged) > len(outcomes) / 3, "the order is hardly ever carried out"


async def broken_promises(*, running: bool = False) -> int:
    broken = 0
    for seed in SEEDS:
        try:
            await check(seed, running=running)
        except AssertionError:
            broken += 1
    return broken


async def test_a_release_of_the_newest_of_two_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = resubmit.next_step

    def planted(sight: Sight, *rest: Any, **more: Any) -> Any:
        return real(Sight(sight.old, sight.new[-1:]), *rest, **more)

    monkeypatch.setattr(resubmit, "next_step", planted)
    assert await broken_promises()


async def test_a_submission_that_is_not_held_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = resubmit._in_place_of

    def planted(*order: Any) -> Any:
        return real(*order).model_copy(update={"held": False})

    monkeypatch.setattr(resubmit, "_in_place_of", planted)
    assert await broken_promises()


async def test_an_owners_word_that_is_not_heard_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resubmission, "overtaken_by", lambda *_old, **_more: "")
    assert await broken_promises(running=True)
