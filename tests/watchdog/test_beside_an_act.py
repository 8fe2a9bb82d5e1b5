"""The watchdog and a worker's act at the same job at the same time, one call at a time in every order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from activities.scheduler.marker import Account, Marker, read_marker, write_marker
from activities.scheduler.overdue import Release, decide, our_hold
from activities.scheduler.protocol import ClusterReading, Hold, JobState, JobUnknown, SchedulerError
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.simulated_wire import JobSpec
from activities.scheduler.steps import Sent, Step, next_step
from activities.scheduler.watchdog import Watchdog
from recovery.model import Disposition, Mode, Reconciliation
from tests.protocol.parts import START, an_advice, an_order
from tests.protocol.stepping import Call, SteppedScheduler, Try
from tests.watchdog.parts import Recorded, a_held_job
from workers.simulator.cluster import Cluster, Timing

NODES = ("node01", "node02", "node03", "node04")
MAX_CALLS = 9


class WatchedScheduler(SteppedScheduler):
    """As `SteppedScheduler`, with the bulk read that the watchdog begins with."""

    async def jobs(self) -> ClusterReading:
        reading: ClusterReading = await self._ask(
            Call("job", lambda: ClusterReading(read_at=START, jobs=self._cluster.records()))
        )
        return reading


class World:
    """One job that runs and is to be restarted without node03, an act, and a watchdog that is past its deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now: datetime = START
        self.cluster = Cluster(NODES, Path("/jobs"), Timing(epilog_s=0))
        self.cluster.submit(JobSpec(argv=("train",), exclude=("node01",)), START)
        self.cluster.tick(START)
        self.order = an_order()
        self.requeues = 0
        self.act_calls = SteppedScheduler(self.cluster, lambda: self.now)
        acts = SchedulerActs(self.act_calls, settle_s=0, clock=lambda: self.now)
        self.act = Try(loop, self.act_calls, acts)
        self.act.start(self.order, 1)
        self.watchdog_calls = WatchedScheduler(self.cluster, lambda: self.now)
        self.recorded = Recorded()
        watchdog = Watchdog(
            self.watchdog_calls,
            self.recorded.record,
            cluster="alpha",
            mode=Mode.ACT,
            deadline=timedelta(),
            settle_s=0,
            clock=lambda: self.now,
        )
        self.look = watchdog.look
        self.looking: asyncio.Task[object] | None = None

    def act_steps(self, calls: int) -> None:
        for _ in range(calls):
            call = self.act.call
            if call is None:
                return
            self.requeues += call.verb == "requeue_hold"
            self.act.answer()
            self.processes_end()

    def watchdog_steps(self, calls: int) -> None:
        if self.looking is None:
            self.looking = self.loop.create_task(self.look())
        for _ in range(calls):
            self._run_watchdog()
            call = self.watchdog_calls.call
            if call is None:
                return
            self.watchdog_calls.call = None
            try:
                call.answer.set_result(call.carry_out())
            except SchedulerError as error:
                call.answer.set_exception(error)
            self._run_watchdog()

    def processes_end(self) -> None:
        self.now += timedelta(seconds=1)
        with suppress(JobUnknown):
            record = self.cluster.record("1")
            if record.flags and record.state is JobState.PENDING:
                self.cluster.attempt_gone("1", 0, 15, self.now)
        self.cluster.tick(self.now)

    def _run_watchdog(self) -> None:
        async def blocked() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        self.loop.run_until_complete(blocked())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("act_first", range(MAX_CALLS + 1))
def test_every_interleaving_of_an_act_and_a_look_converges(act_first: int, loop: asyncio.AbstractEventLoop) -> None:
    released = 0
    for watchdog_then in range(MAX_CALLS):
        for act_then in range(MAX_CALLS):
            world = World(loop)
            world.act_steps(act_first)
            world.watchdog_steps(watchdog_then)
            world.act_steps(act_then)
            world.watchdog_steps(50)
            world.act_steps(50)
            outcome = world.act.outcome
            assert isinstance(outcome, Reconciliation)
            assert outcome.disposition is Disposition.CONVERGED
            record = world.cluster.record("1")
            assert record.hold is Hold.NONE, "left held"
            assert record.restart_count == 1
            assert world.requeues == 1
            assert isinstance(read_marker(record.admin_comment), Account), "the mark was left behind"
            assert "node01" in record.excluded_nodes
            if outcome.reason == "desired_state_observed":
                assert "node03" in record.excluded_nodes
            released += "acted" in world.recorded.kinds
    assert released > 0 or act_first >= 8, "the watchdog never came in between"


@pytest.mark.parametrize("act_first", range(MAX_CALLS + 1))
def test_when_the_worker_dies_anywhere_after_its_mark_two_looks_leave_nothing_held(
    act_first: int, loop: asyncio.AbstractEventLoop
) -> None:
    world = World(loop)
    world.act_steps(act_first)
    world.act.die()
    for _ in range(2):
        world.looking = None
        world.watchdog_steps(50)
        world.processes_end()
    record = world.cluster.record("1")
    assert record.hold is Hold.NONE
    assert record.restart_count == min(world.requeues, 1)


def test_the_acts_next_step_after_a_release_sets_the_exclusions_that_are_missing_and_ends() -> None:
    order, held = an_order(), a_held_job()
    assert isinstance(decide(our_hold(held), timedelta(hours=1), timedelta(minutes=5)), Release)
    released = held.model_copy(update={"hold": Hold.NONE})
    assert next_step(released, order, START, sent=Sent.HOLD) is Step.CONSTRAIN
    account = write_marker(held.admin_comment, Account(did=order.advice.key))
    unmarked = released.model_copy(update={"admin_comment": account})
    assert next_step(unmarked, order, START, sent=Sent.HOLD) is Step.CONSTRAIN
    done = unmarked.model_copy(update={"excluded_nodes": ("node01", "node03")})
    outcome = next_step(done, order, START, sent=Sent.HOLD)
    assert isinstance(outcome, Reconciliation)
    assert (outcome.disposition, outcome.reason) == (Disposition.CONVERGED, "desired_state_observed")


def test_the_acts_next_step_after_a_release_and_a_start_says_what_is_missing() -> None:
    order = an_order()
    started = a_held_job(
        state=JobState.RUNNING, hold=Hold.NONE, admin_comment=write_marker("", Account(did=order.advice.key))
    )
    outcome = next_step(started, order, START, sent=Sent.HOLD)
    assert isinstance(outcome, Reconciliation)
    assert outcome.disposition is Disposition.CONVERGED
    assert "node03" in outcome.detail


def test_an_older_mark_that_the_watchdog_left_on_an_ended_attempt_does_not_stop_the_next_act() -> None:
    older = write_marker("", Marker(holds=an_advice().key, since=START))
    order = an_order(advice=an_advice(attempt=1, generation=2))
    failed = a_held_job(state=JobState.FAILED, hold=Hold.NONE, admin_comment=older)
    assert next_step(failed, order, START, sent=Sent.NOTHING) is Step.REQUEUE
