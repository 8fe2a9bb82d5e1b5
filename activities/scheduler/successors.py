"""Chains: jobs that are each other's retry, so that the next one starts when one has ended.

Nothing of such a chain is requeued. What an advice asks for is done to the job that waits for the failed one: the bad
nodes are put on its exclusion list, in one request with an account of why, and nothing else about it is changed. Only a
job of the same owner that opted in in the same way, and that nobody holds, is touched. A job that hangs is ended once
the next one is kept off its nodes.

The next one starts within seconds of an end, and its list can't be changed any more then: so it is constrained as soon
as a line names the culprit beyond doubt, before the attempt has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.scheduler.acting import NO_ACTS_HERE, acting
from activities.scheduler.marker import Account, read_marker, write_marker
from activities.scheduler.protocol import (
    Hold,
    JobFlag,
    JobRecord,
    JobState,
    JobUnknown,
    Refused,
    Scheduler,
)
from recovery.model import Advice, Disposition, JobId, Mode, NodeName, Reconciliation, Value
from recovery.optin import parse_comment

MAX_LOOKS = 20
SETTLE_S = 0.5
CONSTRAINED = "successor_constrained"
_FOLLOWS = ("afterany", "afternotok")


class SuccessorOrder(Value):
    """An advice that is carried out on the next job of a chain. Durable in history before any worker sees it."""

    advice: Advice
    job: JobRecord
    """The one that failed, as it came under guard."""
    ends_job: bool
    """It still runs and is to be ended, once the next one is constrained."""


def successors(jobs: Iterable[JobRecord], order: SuccessorOrder) -> tuple[JobRecord, ...]:
    """Return the jobs that start when the order's has ended: all that wait for its end, and the first of those that
    share its name (``singleton``). One that others put back into the queue is its own."""
    failed = order.job
    waiting = [job for job in jobs if job.state is JobState.PENDING and _is_of_the_chain(job, failed)]
    by_name = [job for job in waiting if any(term.kind == "singleton" for term in job.dependency.terms)]
    by_end = [job for job in waiting if any(_waits_for(term.kind, term.job, failed) for term in job.dependency.terms)]
    itself = [job for job in waiting if job.job_id == failed.job_id and job.restart_count > order.advice.attempt]
    first = sorted((job for job in by_name if job.name == failed.name and job not in itself), key=_number)[:1]
    return tuple({job.job_id: job for job in (*itself, *by_end, *first)}.values())


def _is_of_the_chain(job: JobRecord, failed: JobRecord) -> bool:
    optin = parse_comment(job.comment)
    return optin is not None and optin.chain and optin.mode is Mode.ACT and job.user == failed.user


def _waits_for(kind: str, job_id: JobId, failed: JobRecord) -> bool:
    return kind in _FOLLOWS and job_id == failed.job_id


def _number(job: JobRecord) -> int:
    return int(job.job_id.partition("_")[0])


class ChainActs:
    """Acts on the next jobs of chains of one cluster, as a Temporal activity."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        may_act_in: Callable[[str], bool] = lambda partition: True,  # noqa: ARG005
        settle_s: float = SETTLE_S,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`may_act_in`: whether the operator's settings, as this worker was started with, allow acts in a partition."""
        self._scheduler = scheduler
        self._may_act_in = may_act_in
        self._settle_s = settle_s
        self._clock = clock

    @activity.defn
    async def constrain_successors(self, order: SuccessorOrder) -> Reconciliation:
        """Keep the next jobs of the chain off the advice's nodes, and return what a fresh look at the scheduler says.

        Raises a retryable `ApplicationError`: ``SchedulerUnavailable`` without an answer, ``NotSettled`` when the
        scheduler does not come to rest. To repeat the call is always safe.
        """
        async with acting():
            return await self._until_settled(order)

    async def _until_settled(self, order: SuccessorOrder) -> Reconciliation:
        for _ in range(MAX_LOOKS):
            jobs = (await self._scheduler.jobs()).jobs
            settled = await self._step(jobs, order)
            if settled is not None:
                return settled
            await asyncio.sleep(self._settle_s)
        raise ApplicationError(f"the chain of job {order.job.job_id} did not come to rest", type="NotSettled")

    async def _step(self, jobs: tuple[JobRecord, ...], order: SuccessorOrder) -> Reconciliation | None:
        """Take the one step that the reading calls for; None: look again."""
        now = self._clock()
        failed = next((job for job in jobs if job.job_id == order.job.job_id), None)
        if failed is not None and failed.state is JobState.CANCELLED and not order.ends_job:
            return Reconciliation.abandoned("owner_cancelled", self._clock(), "the job of the chain was cancelled")
        following = successors(jobs, order)
        nodes = _nodes_to_avoid(order, failed)
        if not following:
            return self._without_successor(_who_runs(jobs, order), nodes)
        if held := [job.job_id for job in following if job.hold is not Hold.NONE]:
            return Reconciliation.abandoned(
                "person_intervened", self._clock(), f"the next job of the chain, {held[0]}, is held"
            )
        if not all(self._may_act_in(job.partition) for job in following):
            return Reconciliation.abandoned("mode_observe", self._clock(), NO_ACTS_HERE)
        if changes := {job.job_id: job for job in following if not set(_wanted(job, nodes)) <= set(job.excluded_nodes)}:
            if now > order.advice.expires_at:
                return Reconciliation.abandoned(
                    "advice_expired", self._clock(), "the next job of the chain was not constrained in time"
                )
            return await self._constrain(changes, nodes, order)
        if order.ends_job and failed is not None and _runs(failed, order):
            await self._scheduler.cancel(failed.job_id)
            return None
        return _constrained(following, nodes, now)

    async def _constrain(
        self, changes: dict[JobId, JobRecord], nodes: tuple[NodeName, ...], order: SuccessorOrder
    ) -> Reconciliation | None:
        for job_id, job in changes.items():
            account = Account(did=order.advice.key, why=order.advice.reason[:200], excluded=nodes)
            wanted = tuple(sorted({*job.excluded_nodes, *_wanted(job, nodes)}))
            try:
                await self._scheduler.constrain(
                    job_id, exclude=wanted, admin_comment=write_marker(job.admin_comment, account)
                )
            except JobUnknown as error:
                activity.logger.info("the next job of a chain is gone: %s", error)
            except Refused as error:
                # It may have started since it was read: the next look tells.
                if job.state is JobState.PENDING and not await self._has_started(job_id):
                    return Reconciliation.abandoned("not_constrained", self._clock(), str(error))
        return None

    async def _has_started(self, job_id: JobId) -> bool:
        return (await self._scheduler.job(job_id)).state is not JobState.PENDING

    def _without_successor(self, started: JobRecord | None, nodes: tuple[NodeName, ...]) -> Reconciliation:
        if started is None:
            return Reconciliation.abandoned(
                "no_successor", self._clock(), "no job of its chain waits that opted in too"
            )
        if not set(nodes) & set(started.nodes):
            return _constrained((started,), nodes, self._clock())
        where = ", ".join(started.nodes)[:200]
        return Reconciliation.abandoned(
            "no_successor", self._clock(), f"job {started.job_id} of its chain has started already, on {where}"
        )


def _nodes_to_avoid(order: SuccessorOrder, failed: JobRecord | None) -> tuple[NodeName, ...]:
    """The advice's nodes, and those that were put on the failed job's own list for its predecessors."""
    account = read_marker(failed.admin_comment) if failed is not None else None
    before = account.excluded if isinstance(account, Account) else ()
    return tuple(dict.fromkeys((*before, *order.advice.exclude)))


def _wanted(job: JobRecord, nodes: tuple[NodeName, ...]) -> tuple[NodeName, ...]:
    """What can be excluded of a job: not what it asks for by name."""
    return tuple(node for node in nodes if node not in job.required_nodes)


def _runs(failed: JobRecord, order: SuccessorOrder) -> bool:
    same = failed.restart_count == order.advice.attempt and failed.hold is Hold.NONE
    return same and failed.state is JobState.RUNNING and JobFlag.COMPLETING not in failed.flags


def _who_runs(jobs: Iterable[JobRecord], order: SuccessorOrder) -> JobRecord | None:
    """The next job of the chain, where it has started already."""
    failed = order.job
    for job in jobs:
        follows = job.job_id != failed.job_id and job.name == failed.name
        if follows and job.state is JobState.RUNNING and _is_of_the_chain(job, failed):
            return job
    return None


def _constrained(following: tuple[JobRecord, ...], nodes: tuple[NodeName, ...], now: datetime) -> Reconciliation:
    named = ", ".join(job.job_id for job in following)
    avoids = f"and avoids {', '.join(nodes)}" if nodes else "on any node"
    return Reconciliation(
        disposition=Disposition.CONVERGED,
        reason=CONSTRAINED,
        observed_at=now,
        excluded=following[0].excluded_nodes,
        detail=f"job {named} of the chain is next, {avoids}",
    )
