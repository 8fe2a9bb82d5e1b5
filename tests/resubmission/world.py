"""One job that can't be requeued, an order to submit another one in its place, and a scheduler that loses, delays and
repeats our calls. Everything that happens is drawn from a seed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.scheduler.lineage import read_lineage
from activities.scheduler.marker import Replaced, read_marker
from activities.scheduler.protocol import ClusterReading, JobRecord, JobState, NodeRecord, SchedulerUnavailable
from activities.scheduler.resubmission import CANCELLED_WITHIN, ResubmitOrder
from activities.scheduler.resubmit import Resubmitter
from activities.scheduler.simulated_wire import JobSpec
from activities.scheduler.submission import Submission
from recovery.model import Advice, JobId, JobKey, Mode, Reconciliation
from recovery.optin import OptIn
from tests.protocol.parts import START, an_advice
from workers.simulator.cluster import Cluster, Timing

OLD = "1"
MOST_TRIES = 60
FATES = ("answered",) * 6 + ("lost", "answer lost", "late", "doubled")
EVENTS = ("nothing",) * 12 + ("the worker dies", "the old job is cancelled", "the old job completes", "time passes")


class WorldScheduler:
    """The pure simulated cluster, behind a network of which a test draws the faults."""

    def __init__(self, cluster: Cluster, draw: random.Random, *, calm: bool) -> None:
        self.cluster = cluster
        self.now: datetime = START + timedelta(minutes=1)
        self._draw = draw
        self.calm = calm
        self._late: list[Callable[[], object]] = []
        self.before_each: Callable[[str], None] = lambda _verb: None

    async def jobs(self) -> ClusterReading:
        def read() -> ClusterReading:
            return ClusterReading(read_at=self.now, jobs=self.cluster.records())

        reading: ClusterReading = await self._call("jobs", read)
        return reading

    async def job(self, job_id: JobId) -> JobRecord:
        record: JobRecord = await self._call("job", lambda: self.cluster.record(job_id))
        return record

    async def nodes(self) -> tuple[NodeRecord, ...]:
        return self.cluster.node_records()

    async def release(self, job_id: JobId) -> None:
        await self._call("release", lambda: self.cluster.release(job_id))

    async def cancel(self, job_id: JobId) -> None:
        await self._call("cancel", lambda: self.cluster.cancel(job_id, self.now, by="relight"))

    async def constrain(self, job_id: JobId, *, exclude: Any = None, admin_comment: str | None = None) -> None:
        await self._call(
            "constrain", lambda: self.cluster.constrain(job_id, exclude=exclude, admin_comment=admin_comment)
        )

    async def requeue_hold(self, job_id: JobId) -> None:
        raise NotImplementedError

    requeue = start_now = allow_requeue = requeue_hold

    async def batch_script(self, job_id: JobId) -> str:
        raise NotImplementedError

    async def submission_of(self, job: JobRecord) -> Submission:
        return Submission(script="#!train", owner=job.user, comment=job.comment, exclude=job.excluded_nodes)

    async def submit(self, submission: Submission) -> JobId:
        spec = JobSpec(argv=("train",), comment=submission.comment, exclude=submission.exclude, held=submission.held)
        job_id: str = await self._call("submit", lambda: self.cluster.submit(spec, self.now))
        return job_id

    async def _call(self, verb: str, carry_out: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        self.before_each(verb)
        self.pass_time(1 if self.calm else self._draw.choice((1, 1, 1, 5, 20)))
        fate = "answered" if self.calm or verb in ("jobs", "job") else self._draw.choice(FATES)
        if fate == "lost":
            raise SchedulerUnavailable("lost")
        if fate == "late":
            self._late.append(carry_out)
            raise SchedulerUnavailable("late")
        if fate == "doubled":
            carry_out()
        answer = carry_out()
        if fate == "answer lost":
            raise SchedulerUnavailable("answer lost")
        return answer

    def pass_time(self, seconds: int) -> None:
        """Let the clock go on, and what was late arrive, or not yet."""
        self.now += timedelta(seconds=seconds)
        for carry_out in [late for late in self._late if self._draw.random() < 0.3]:
            self._late.remove(carry_out)
            try:
                carry_out()
            except Exception as error:  # noqa: BLE001 - its caller is gone
                del error
        self.cluster.tick(self.now)


class World:
    """A run from a seed."""

    def __init__(self, seed: int, *, running: bool, scheduler: type[WorldScheduler] = WorldScheduler) -> None:
        self.draw = random.Random(seed)
        self.cluster = Cluster(("node01", "node02", "node03", "node04"), Path("/jobs"), Timing(epilog_s=1))
        comment = json.dumps({"relight": {"mode": "act"}})
        self.cluster.submit(JobSpec(argv=("train",), comment=comment, requeueable=False), START)
        self.cluster.tick(START)
        if not running:
            self.cluster.attempt_gone(OLD, 1, 0, START + timedelta(seconds=30))
        self.scheduler = scheduler(self.cluster, self.draw, calm=seed == 0)
        self.scheduler.pass_time(3)
        self.advice: Advice = an_advice(
            job=JobKey(cluster="alpha", job_id=OLD, submitted_at=START), expires_at=START + timedelta(minutes=15)
        )
        self.order = ResubmitOrder(
            advice=self.advice,
            job=self.cluster.record(OLD),
            optin=OptIn(mode=Mode.ACT),
            count=1,
            ordered_at=self.scheduler.now,
        )
        self.disturbed = ""
        self.started: set[str] = set()
        """The jobs submitted for the order that ever ran."""

    @property
    def submitted(self) -> list[JobRecord]:
        return [job for job in self.cluster.records() if read_lineage(job.comment) is not None]

    @property
    def old_state(self) -> JobState | None:
        """None once the cluster has forgotten the job."""
        old = self.job(OLD)
        return old.state if old is not None else None

    def looks_like_ours(self) -> bool:
        """Whether nobody could tell a cancel at this moment from the one that relight is about to send."""
        word = read_marker(self.cluster.record(OLD).admin_comment)
        return isinstance(word, Replaced) and self.scheduler.now - word.since <= CANCELLED_WITHIN + timedelta(seconds=1)

    def job(self, job_id: str) -> JobRecord | None:
        return next((job for job in self.cluster.records() if job.job_id == job_id), None)

    async def play(self) -> Reconciliation:
        """Try the order until it is settled."""
        for number in range(1, MOST_TRIES):
            outcome = await self._try(number)
            if outcome is not None:
                self._settle_down()
                return outcome
        raise AssertionError("never settled")

    async def _try(self, number: int) -> Reconciliation | None:
        acts = Resubmitter(self.scheduler, settle_s=0, clock=lambda: self.scheduler.now)  # type: ignore[arg-type]
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=number)
        task = asyncio.ensure_future(_run(lambda: environment.run(acts.submit_anew, self.order)))
        self.scheduler.before_each = lambda verb: self._meanwhile(verb, task)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    def _meanwhile(self, verb: str, task: asyncio.Future[Any] | None) -> None:
        self._look()
        event = self.draw.choice(EVENTS)
        running = self.old_state is JobState.RUNNING
        if event == "the worker dies" and task is not None:
            task.cancel()
        elif event == "time passes":
            self.scheduler.pass_time(30)
        elif event == "the old job is cancelled" and running and verb != "submit" and not self.looks_like_ours():
            self.disturbed = "cancelled"
            self.cluster.cancel(OLD, self.scheduler.now, by="alice")
            self.cluster.attempt_gone(OLD, 0, 15, self.scheduler.now)
        elif event == "the old job completes" and running:
            self.disturbed = "completed"
            self.cluster.attempt_gone(OLD, 0, 0, self.scheduler.now)
        elif self.old_state is JobState.CANCELLED:
            self.cluster.attempt_gone(OLD, 0, 15, self.scheduler.now)

    def _settle_down(self) -> None:
        """Let everything that is still under way arrive."""
        for _ in range(40):
            self.scheduler.pass_time(5)
            self._look()

    def _look(self) -> None:
        self.started |= {job.job_id for job in self.submitted if job.state is JobState.RUNNING}


async def _run(act: Callable[[], Awaitable[Reconciliation]]) -> Reconciliation | None:
    try:
        return await act()
    except ApplicationError:
        return None
