"""`SchedulerActs.carry_out` as it is, one call to the scheduler at a time.

The scheduler that the activity gets waits at every call, and the test says when, how and whether that call is carried
out and answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.scheduler.protocol import ClusterReading, JobRecord, NodeRecord, SchedulerError, SchedulerUnavailable
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.steps import ActOrder
from recovery.model import JobId, NodeName, Reconciliation
from workers.simulator.cluster import Cluster


@dataclass(frozen=True)
class Call:
    """One call to the scheduler that is not carried out yet."""

    verb: str
    carry_out: Callable[[], object]
    exclude: tuple[NodeName, ...] | None = None
    comment: str | None = None
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def reads(self) -> bool:
        return self.verb in ("job", "nodes")


class SteppedScheduler:
    """The pure simulated cluster behind the `Scheduler` protocol; each call waits for the test."""

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._clock = clock
        self.call: Call | None = None
        """What the activity waits for."""

    async def _ask(self, call: Call) -> Any:
        self.call = call
        return await call.answer

    async def jobs(self) -> ClusterReading:
        raise NotImplementedError("an act reads one job, never all")

    async def job(self, job_id: JobId) -> JobRecord:
        record: JobRecord = await self._ask(Call("job", lambda: self._cluster.record(job_id)))
        return record

    async def nodes(self) -> tuple[NodeRecord, ...]:
        nodes: tuple[NodeRecord, ...] = await self._ask(Call("nodes", self._cluster.node_records))
        return nodes

    async def requeue_hold(self, job_id: JobId) -> None:
        await self._ask(Call("requeue_hold", lambda: self._cluster.requeue(job_id, self._clock(), held=True)))

    async def requeue(self, job_id: JobId) -> None:
        await self._ask(Call("requeue", lambda: self._cluster.requeue(job_id, self._clock(), held=False)))

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        def carry_out() -> None:
            self._cluster.constrain(job_id, exclude=exclude, admin_comment=admin_comment)

        await self._ask(Call("constrain", carry_out, exclude=exclude, comment=admin_comment))

    async def release(self, job_id: JobId) -> None:
        await self._ask(Call("release", lambda: self._cluster.release(job_id)))

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        def carry_out() -> None:
            self._cluster.start_now(job_id, self._clock(), admin_comment=admin_comment)

        await self._ask(Call("start_now", carry_out, comment=admin_comment))

    async def allow_requeue(self, job_id: JobId) -> None:
        await self._ask(Call("allow_requeue", lambda: self._cluster.allow_requeue(job_id)))

    async def cancel(self, job_id: JobId) -> None:
        await self._ask(Call("cancel", lambda: self._cluster.cancel(job_id, self._clock(), by="relight")))


class Try:
    """One try of the activity, as Temporal would start it on a worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, scheduler: SteppedScheduler, acts: SchedulerActs) -> None:
        self._loop = loop
        self._scheduler = scheduler
        self._acts = acts
        self._task: asyncio.Task[Reconciliation] | None = None

    def start(self, order: ActOrder, number: int) -> None:
        """Run to the first call."""
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=number)
        self._task = self._loop.create_task(environment.run(self._acts.carry_out, order))
        self._run_to_the_next_call()

    @property
    def call(self) -> Call | None:
        """What it waits for; None once it is over."""
        return self._scheduler.call

    @property
    def outcome(self) -> Reconciliation | None:
        """What it returned; None where it failed and Temporal would try again."""
        assert self._task is not None
        try:
            return self._task.result()
        except ApplicationError:
            return None

    def answer(self) -> object:
        """Carry the call out and let its answer, or Slurm's refusal, arrive. Returns that answer."""
        call = self._taken()
        try:
            answer = call.carry_out()
            call.answer.set_result(answer)
        except SchedulerError as refusal:
            answer = refusal
            call.answer.set_exception(refusal)
        self._run_to_the_next_call()
        return answer

    def no_answer(self) -> None:
        """Let the call end without an answer."""
        self._taken().answer.set_exception(SchedulerUnavailable("Socket timed out on send/recv operation"))
        self._run_to_the_next_call()

    def die(self) -> None:
        """The worker is killed."""
        self._scheduler.call = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)

    def _taken(self) -> Call:
        call, self._scheduler.call = self._scheduler.call, None
        assert call is not None, "the try is over"
        return call

    def _run_to_the_next_call(self) -> None:
        self._loop.run_until_complete(self._blocked())

    async def _blocked(self) -> None:
        while self._scheduler.call is None and self._task is not None and not self._task.done():
            await asyncio.sleep(0)
