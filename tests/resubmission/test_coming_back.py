"""An act that comes back: to what it left, to what the watchdog did meanwhile, and so late that nobody can tell."""

from __future__ import annotations

import asyncio

from activities.scheduler.lineage import QUIET, read_lineage
from activities.scheduler.marker import Account, Marker, PassedOver, Replaced, read_marker, write_marker
from activities.scheduler.protocol import Hold, JobRecord, JobState
from recovery.model import Disposition, Reconciliation
from tests.resubmission.world import OLD, World

FORGOTTEN_S = 320


class Killed(World):
    """A world without faults, in which the worker of the first try is killed as it calls `dies_at`."""

    def __init__(self, dies_at: str, *, running: bool) -> None:
        super().__init__(0, running=running)
        self.dies_at = dies_at
        self.calls: list[str] = []

    def _meanwhile(self, verb: str, task: asyncio.Future[object] | None) -> None:
        self.calls.append(verb)
        self._look()
        if verb == self.dies_at and task is not None:
            task.cancel()

    async def is_killed(self) -> None:
        assert await self._try(1) is None
        self.dies_at = ""
        self.calls.clear()

    async def comes_back(self) -> Reconciliation:
        outcome = await self._try(2)
        assert outcome is not None
        self._settle_down()
        return outcome

    @property
    def new(self) -> JobRecord:
        [new] = self.submitted
        return new

    def says(self, job_id: str, word: Account | Marker | PassedOver) -> None:
        self.cluster.constrain(job_id, exclude=None, admin_comment=write_marker("", word))


def gave_up(outcome: Reconciliation) -> tuple[Disposition, str]:
    return outcome.disposition, outcome.reason


async def test_the_old_job_is_marked_before_it_is_cancelled_so_that_the_next_try_knows_its_own_cancel() -> None:
    world = Killed("cancel", running=True)
    await world.is_killed()
    old = world.job(OLD)
    assert old is not None
    assert old.state is JobState.CANCELLED
    assert isinstance(read_marker(old.admin_comment), Replaced)
    world.cluster.attempt_gone(OLD, 0, 15, world.scheduler.now)
    outcome = await world.comes_back()
    assert (outcome.disposition, outcome.resubmitted_as) == (Disposition.CONVERGED, world.new.job_id)
    assert world.started == {world.new.job_id}


async def test_an_owner_who_cancels_the_old_job_while_the_worker_is_dead_is_heard() -> None:
    world = Killed("submit", running=True)
    await world.is_killed()
    world.cluster.cancel(OLD, world.scheduler.now, by="alice")
    outcome = await world.comes_back()
    assert gave_up(outcome) == (Disposition.ABANDONED, "owner_cancelled")
    assert world.new.state is JobState.CANCELLED
    assert not world.started


async def test_an_owner_who_cancels_long_after_our_mark_is_heard() -> None:
    world = Killed("constrain", running=True)
    await world.is_killed()
    world.scheduler.pass_time(300)
    world.cluster.cancel(OLD, world.scheduler.now, by="alice")
    assert gave_up(await world.comes_back()) == (Disposition.ABANDONED, "owner_cancelled")
    assert not world.started


async def test_how_the_old_job_ended_meanwhile_is_not_guessed_once_it_is_forgotten() -> None:
    world = Killed("submit", running=True)
    await world.is_killed()
    world.cluster.attempt_gone(OLD, 0, 0, world.scheduler.now)
    world.scheduler.pass_time(1)
    world.scheduler.pass_time(FORGOTTEN_S)
    assert world.job(OLD) is None
    outcome = await world.comes_back()
    assert gave_up(outcome) == (Disposition.ABANDONED, "not_submitted")
    assert "how job 1 ended can't be told any more: job 2 stays held" in outcome.detail
    assert not world.started


async def test_what_had_ended_before_is_finished_however_late() -> None:
    world = Killed("submit", running=False)
    await world.is_killed()
    world.scheduler.pass_time(FORGOTTEN_S)
    assert (await world.comes_back()).disposition is Disposition.CONVERGED
    assert world.started == {world.new.job_id}


async def test_a_later_submission_is_not_released_once_an_earlier_one_may_be_forgotten() -> None:
    world = Killed("submit", running=False)
    assert await world._try(2) is None
    lineage = read_lineage(world.new.comment)
    assert lineage is not None
    assert not lineage.first
    world.dies_at = ""
    world.scheduler.pass_time(FORGOTTEN_S)
    outcome = await world.comes_back()
    assert gave_up(outcome) == (Disposition.ABANDONED, "not_submitted")
    assert "whether another job ran in its place can't be told any more" in outcome.detail
    assert world.new.hold is Hold.USER


async def test_what_the_watchdog_marked_in_time_is_released_though_all_else_is_forgotten() -> None:
    world = Killed("submit", running=True)
    await world.is_killed()
    world.says(world.new.job_id, Marker(holds=world.advice.key, since=world.scheduler.now))
    world.cluster.attempt_gone(OLD, 1, 0, world.scheduler.now)
    world.scheduler.pass_time(1)
    world.scheduler.pass_time(FORGOTTEN_S)
    assert (await world.comes_back()).disposition is Disposition.CONVERGED
    assert isinstance(read_marker(world.new.admin_comment), Account)


async def test_what_the_watchdog_released_is_accounted_for_and_not_released_again() -> None:
    world = Killed("submit", running=False)
    await world.is_killed()
    world.cluster.release(world.new.job_id)
    assert (await world.comes_back()).disposition is Disposition.CONVERGED
    assert "release" not in world.calls
    assert isinstance(read_marker(world.new.admin_comment), Account)


async def test_what_the_watchdog_passed_over_stays_held_and_the_outcome_says_so() -> None:
    world = Killed("submit", running=False)
    await world.is_killed()
    world.says(world.new.job_id, PassedOver(not_for=world.advice.key, why="job 9 is the one for its order"))
    outcome = await world.comes_back()
    assert gave_up(outcome) == (Disposition.ABANDONED, "not_submitted")
    assert "stays held: job 9 is the one for its order" in outcome.detail
    assert world.new.hold is Hold.USER


async def test_who_was_stopped_in_the_midst_of_a_look_counts_with_another_try_meanwhile() -> None:
    class Stopped(Killed):
        def _meanwhile(self, verb: str, task: asyncio.Future[object] | None) -> None:
            if not self.calls:
                self.scheduler.pass_time(60)
            super()._meanwhile(verb, task)

    world = Stopped("nothing", running=False)
    outcome = await world._try(1)
    assert outcome is not None
    assert outcome.disposition is Disposition.CONVERGED
    lineage = read_lineage(world.new.comment)
    assert lineage is not None
    assert not lineage.first
    assert lineage.since >= world.order.ordered_at + QUIET, "it waits for what the other one may have sent"
