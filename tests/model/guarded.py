"""The action protocol with the watchdog beside it, an operator who changes their mind, and a worker that may be gone
for good. Nobody acts between a read and the call that it led to, neither ours nor the watchdog's."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import datetime, timedelta

from activities.scheduler.marker import Marker, read_marker
from activities.scheduler.protocol import (
    ClusterReading,
    Hold,
    JobFlag,
    JobRecord,
    JobState,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.watchdog import Watchdog
from recovery.model import Mode
from tests.protocol.machine import ACTIONS, CULPRIT, EVENTS, FATES, NO_NODE, SITES_COMMENT, STARTS, Protocol
from tests.protocol.stepping import Call, SteppedScheduler
from tests.watchdog.parts import Recorded

DEADLINE_S, INTERVAL_S = 60, 30
STEPS = 40
WATCHED_EVENTS = (
    *EVENTS,
    *("the watchdog calls: answered",) * 8,
    "the watchdog calls: lost",
    "the watchdog calls: answer lost",
    "the watchdog dies",
    "the worker is gone",
    "the operator: observes",
    "the operator: acts",
)
BEGINS = ("requeue_hold", "requeue", "cancel", "allow_requeue")
"""Calls that change what becomes of the job."""


class WatchedScheduler(SteppedScheduler):
    """As `SteppedScheduler`, with the bulk read that the watchdog begins with."""

    async def jobs(self) -> ClusterReading:
        def read() -> ClusterReading:
            return ClusterReading(read_at=self._clock(), jobs=self._cluster.records())

        reading: ClusterReading = await self._ask(Call("jobs", read))
        return reading


class Guarded(Protocol):
    """One order, its act, and a watchdog that looks every `INTERVAL_S` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.acting = True
        """What the operator's settings say."""
        self.acts = SchedulerActs(self.scheduler, may_act_in=lambda _: self.acting, settle_s=0, clock=lambda: self.now)
        self.worker_is_gone = False
        self.watched = WatchedScheduler(self.cluster, lambda: self.now)
        self.watchdog = self._a_watchdog()
        self.looking: asyncio.Task[object] | None = None
        self.since_look_s = 0
        self.blind_looks = 0
        """Of the watchdog, since our hold began."""
        self.held_since: datetime | None = None

    def _a_watchdog(self) -> Watchdog:
        return Watchdog(
            self.watched,
            Recorded().record,
            cluster="alpha",
            mode=Mode.ACT,
            deadline=timedelta(seconds=DEADLINE_S),
            settle_s=0,
            clock=lambda: self.now,
            monotonic=lambda: self.now.timestamp(),
        )

    # --- what happens ---------------------------------------------------------------------------------------------

    def we_call(self, fate: str) -> None:
        if self.settled is None and not self.worker_is_gone:
            super().we_call(fate)

    def meanwhile(self, event: str) -> None:
        match event:
            case "the watchdog dies":
                self._watchdog_dies()
            case "the worker is gone":
                self.our_worker_dies(in_flight=False)
                self.worker_is_gone = True
            case "the operator: observes" | "the operator: acts":
                self.acting = event.endswith("acts")
            case _ if event.startswith("the watchdog calls: "):
                self._watchdog_calls(event.rpartition(": ")[2])
            case _:
                super().meanwhile(event)

    def time_passes(self, seconds: int) -> None:
        while seconds:
            slice_s = min(seconds, INTERVAL_S - self.since_look_s)
            seconds -= slice_s
            self.since_look_s = (self.since_look_s + slice_s) % INTERVAL_S
            super().time_passes(slice_s)
            if not self.since_look_s:
                self._look_to_the_end()
            self.nothing_waits_for_us_beyond_the_deadline()

    # --- the watchdog ---------------------------------------------------------------------------------------------

    def _look_to_the_end(self) -> None:
        """End the look that is under way, and look once more."""
        for _ in range(2 if self.looking else 1):
            self._watchdog_calls("answered")
            while self.looking is not None:
                self._watchdog_calls("answered")

    def _watchdog_calls(self, fate: str) -> None:
        """Let it read, and make the call that the read led to."""
        if self.looking is None:
            self.looking = self.loop.create_task(self.watchdog.look())
            self._run_watchdog()
        self._serve_watchdog(fate)
        while (call := self.watched.call) is not None and not (call.reads or call.verb == "jobs"):
            self._serve_watchdog(fate)
        if self.looking is not None and self.looking.done():
            self.looking.result()
            self.looking = None

    def _serve_watchdog(self, fate: str) -> None:
        call, self.watched.call = self.watched.call, None
        if call is None:
            return
        if fate != "answered":
            self.blind_looks += 1
        if fate == "lost":
            call.answer.set_exception(SchedulerUnavailable("Socket timed out on send/recv operation"))
        else:
            self._watchdog_does(call, answered=fate == "answered")
        self._run_watchdog()

    def _watchdog_does(self, call: Call, *, answered: bool) -> None:
        self._check_watchdog(call, self._record())
        try:
            answer = call.carry_out()
        except SchedulerError as refusal:
            call.answer.set_exception(refusal)
            return
        if call.verb == "release":
            self.our_hold = False
            self.disturbed = True
        if answered:
            call.answer.set_result(answer)
        else:
            call.answer.set_exception(SchedulerUnavailable("Socket timed out on send/recv operation"))

    def _run_watchdog(self) -> None:
        async def blocked() -> None:
            while self.watched.call is None and self.looking is not None and not self.looking.done():
                await asyncio.sleep(0)

        self.loop.run_until_complete(blocked())

    def _watchdog_dies(self) -> None:
        self.watched.call = None
        if self.looking is not None:
            self.looking.cancel()
            with suppress(asyncio.CancelledError):
                self.loop.run_until_complete(self.looking)
        self.looking = None
        self.watchdog = self._a_watchdog()

    # --- what must hold -------------------------------------------------------------------------------------------

    def _check(self, call: Call, truth: JobRecord | None) -> None:
        super()._check(call, truth)
        if truth is None or self.acting:
            return
        assert call.verb not in BEGINS, f"{call.verb} though the operator went back to observe mode"
        marks = call.comment is not None and isinstance(read_marker(call.comment), Marker)
        assert not (marks and truth.state is JobState.RUNNING), "a job is marked in observe mode"

    def _check_watchdog(self, call: Call, job: JobRecord | None) -> None:
        assert call.reads or call.verb in ("jobs", "release", "constrain"), f"{call.verb} by the watchdog"
        if job is None:
            return
        if call.verb == "release":
            assert job.hold is Hold.REQUEUED, f"the watchdog releases a job held as {job.hold}"
            assert isinstance(read_marker(job.admin_comment), Marker), "the watchdog releases a hold without our mark"
            assert self.now - job.submitted_at >= timedelta(seconds=DEADLINE_S), "the watchdog releases too early"
        if call.verb == "constrain":
            assert call.exclude is None, "the watchdog changes exclusions"
            assert SITES_COMMENT in (call.comment or ""), "the watchdog drops the site's comment"

    def nothing_waits_for_us_beyond_the_deadline(self) -> None:
        record = self._record()
        waits = record is not None and record.state is JobState.PENDING and JobFlag.COMPLETING not in record.flags
        if not (self.our_hold and waits):
            self.held_since, self.blind_looks = None, 0
            return
        self.held_since = self.held_since or self.now
        allowed_s = DEADLINE_S + INTERVAL_S * (1 + self.blind_looks)
        assert self.now - self.held_since <= timedelta(seconds=allowed_s), "left held beyond the watchdog's deadline"

    def _left_to_itself(self) -> None:
        self._watchdog_dies()
        try:
            if self.worker_is_gone:
                self._left_to_the_watchdog()
            else:
                super()._left_to_itself()
        finally:
            self._watchdog_dies()

    def _left_to_the_watchdog(self) -> None:
        self.blind_looks = 0
        for seconds in (*(1,) * 5, DEADLINE_S, INTERVAL_S, INTERVAL_S):
            self.the_attempts_processes_end(1)
            self.time_passes(seconds)
        assert not self.our_hold, "left held for good"


def play_guarded(seed: int) -> None:
    """One run drawn from `seed`."""
    draw = random.Random(seed)
    game = Guarded()
    try:
        game.order_is_given(
            ended=draw.choice(STARTS),
            requeueable=draw.random() < 0.9,
            action=draw.choice(ACTIONS),
            exclude={node for node in (CULPRIT, NO_NODE) if draw.random() < 0.5},
            withdraw=draw.random() < 0.5,
            clear_delay=draw.random() < 0.5,
            override=draw.random() < 0.5,
            left_behind=draw.random() < 0.2,
            spare_s=draw.choice((0.0, 0.0, 2.0)),
        )
        for _ in range(STEPS):
            if draw.random() < 0.4:
                game.we_call(draw.choice(FATES))
            else:
                game.meanwhile(draw.choice(WATCHED_EVENTS))
            game.at_most_one_requeue_is_ours()
            game.no_hold_of_ours_is_without_its_mark()
            game.the_users_own_exclusions_stay()
            game.nothing_waits_for_us_beyond_the_deadline()
    finally:
        game.teardown()
