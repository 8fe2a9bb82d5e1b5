"""Carrying an advice out: read, take the one step that the record calls for, read again, until nothing is left.

Exactly once is not a matter of memory here: each step is decided from a fresh read (see `steps`), so the activity may
be killed and repeated anywhere. Only the scheduler's answer to the last read is ever reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.scheduler.acting import NO_ACTS_HERE, acting
from activities.scheduler.marker import Account, Marker, write_marker
from activities.scheduler.protocol import (
    JobReader,
    JobRecord,
    JobUnknown,
    NotOffered,
    NotPermitted,
    Refused,
    Scheduler,
)
from activities.scheduler.steps import ActOrder, Sent, Step, held_by_us, is_ours, lacks_mark, list_changes, next_step
from recovery.model import Mode, Reconciliation
from recovery.optin import OptIn, parse_comment

MAX_STEPS = 200
SETTLE_S = 0.15
"""Pause after a step: Slurm answers most commands before their effect can be read."""
MAX_PAUSE_S = 2.0
"""Pause between two reads while there is nothing to do but wait, which may take as long as Slurm's KillWait."""
LIST_REFUSALS = 5
"""After so many refusals of the exclusion list the job goes without: it must not stay held for its sake."""

STALE_AFTER_S = 2.0
"""A process that was stopped between reading and acting must read again: another may have acted meanwhile."""

Clock = Callable[[], datetime]


class ListRefused(Refused):
    """The scheduler does not take the exclusion list, or took the job out of the queue since it was read."""


@dataclass
class Carrying:
    """What one try of an order remembers between its steps."""

    order: ActOrder
    sent: Sent
    waits: int = 0
    """In a row."""
    refusals: int = 0
    trouble: str = "nothing was refused"

    def begins_with(self, step: Step, record: JobRecord) -> bool:
        """Whether `step` is the first that changes what becomes of the job; what comes after it has to be ended."""
        if step is Step.CONSTRAIN:
            return not (is_ours(record, self.order) or held_by_us(record, self.order, sent=self.sent))
        return step in (Step.MARK, Step.ALLOW_REQUEUE, Step.REQUEUE_HOLD, Step.REQUEUE, Step.CANCEL)

    def about_to(self, step: Step) -> None:
        """Note `step` before its call: one that is refused or lost may have got through all the same."""
        self.waits = self.waits + 1 if step is Step.WAIT else 0
        if step is Step.REQUEUE_HOLD:
            self.sent = Sent.HOLD
        if step in (Step.REQUEUE, Step.CANCEL) and self.sent is Sent.NOTHING:
            self.sent = Sent.PERHAPS
        if step is Step.START_NOW:
            # Once is enough: where the scheduler's clock is ahead of ours, the delay would never look cleared.
            self.order = self.order.model_copy(update={"clear_delay": False})


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SchedulerActs:
    """The acts of one cluster, as Temporal activities on its act queue."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        reads: JobReader | None = None,
        may_act_in: Callable[[str], bool] = lambda partition: True,  # noqa: ARG005
        settle_s: float = SETTLE_S,
        clock: Clock = _utc_now,
    ) -> None:
        """`reads`: where the job is read, instead of by a call for each read.

        `may_act_in`: whether the operator's settings, as this worker was started with, allow acts in a partition.

        The second lock on observe mode: a workflow may not have heard yet that the operator went back to it.
        """
        self._scheduler = scheduler
        self._reads = reads or scheduler
        self._may_act_in = may_act_in
        self._settle_s = settle_s
        self._clock = clock

    @activity.defn
    async def carry_out(self, order: ActOrder) -> Reconciliation:
        """Carry `order` out and return what a fresh look at the scheduler says of it.

        Raises a retryable `ApplicationError`: ``SchedulerUnavailable`` without an answer, ``NotSettled`` when the
        scheduler did not come to rest within `MAX_STEPS` steps. To repeat the call is always safe.
        """
        async with acting():
            return await self._until_settled(order)

    async def _until_settled(self, order: ActOrder) -> Reconciliation:
        carrying = Carrying(order, sent=Sent.PERHAPS if activity.info().attempt > 1 else Sent.NOTHING)
        for _ in range(MAX_STEPS):
            settled = await self._read_and_step(carrying)
            if settled is not None:
                return settled
            await asyncio.sleep(min(self._settle_s * 2**carrying.waits, MAX_PAUSE_S))
        raise ApplicationError(
            f"job {order.advice.job.job_id} did not come to rest in {MAX_STEPS} steps; {carrying.trouble}",
            type="NotSettled",
        )

    async def _read_and_step(self, carrying: Carrying) -> Reconciliation | None:
        """Take the step that a fresh read calls for; None: read again."""
        try:
            record = await self._reads.job(carrying.order.advice.job.job_id)
            read_at = time.monotonic()
            step = next_step(record, carrying.order, self._clock(), sent=carrying.sent)
            if isinstance(step, Reconciliation):
                return step
            if carrying.begins_with(step, record) and (why := self._why_observe(record, carrying.order)):
                return await self._back_to_observe(record, carrying.order, why)
            if time.monotonic() - read_at > STALE_AFTER_S:
                return None
            return await self._try_step(step, record, carrying)
        except JobUnknown as error:
            return Reconciliation.abandoned("job_gone", self._clock(), str(error))
        except Refused as error:
            carrying.trouble = str(error)
            return None

    def _why_observe(self, record: JobRecord, order: ActOrder) -> str:
        """Why nothing may be done to the job, whatever its workflow knows; empty: it may."""
        if not self._may_act_in(record.partition):
            return NO_ACTS_HERE
        asked = parse_comment(record.comment) if order.by_its_comment else OptIn(mode=Mode.ACT)
        lets_us = asked is not None and asked.mode is Mode.ACT
        return "" if lets_us else "the job's own comment does not ask for acts any more"

    async def _back_to_observe(self, record: JobRecord, order: ActOrder, why: str) -> Reconciliation:
        """Give up before anything became of the job. A mark that is set already must go, or a later hold of a person's
        would be taken for ours."""
        if is_ours(record, order) and not record.state.ended:
            await self._unmark(record, order)
        return Reconciliation.abandoned("mode_observe", self._clock(), why)

    async def _try_step(self, step: Step, record: JobRecord, carrying: Carrying) -> Reconciliation | None:
        """Take `step`. A refusal only says that the record was older than it: the next read tells what happened in
        between."""
        order = carrying.order
        carrying.about_to(step)
        try:
            await self._take(step, record, carrying)
        except NotPermitted as error:
            if not held_by_us(record, order, sent=carrying.sent):
                reason = "not_offered" if isinstance(error, NotOffered) else "not_permitted"
                return Reconciliation.abandoned(reason, self._clock(), str(error))
            carrying.trouble = str(error)
        except ListRefused as error:
            carrying.trouble, carrying.refusals = str(error), carrying.refusals + 1
            carrying.order = await self._less_what_is_refused(order, everything=carrying.refusals >= LIST_REFUSALS)
        return None

    async def _take(self, step: Step, record: JobRecord, carrying: Carrying) -> None:
        """Call the scheduler for `step`."""
        order = carrying.order
        calls: dict[Step, Callable[[], Awaitable[None]]] = {
            Step.MARK: lambda: self._mark(record, order),
            Step.UNMARK: lambda: self._unmark(record, order),
            Step.CONSTRAIN: lambda: self._constrain(record, order, mark=lacks_mark(record, order, sent=carrying.sent)),
            Step.ALLOW_REQUEUE: lambda: self._scheduler.allow_requeue(record.job_id),
            Step.REQUEUE_HOLD: lambda: self._scheduler.requeue_hold(record.job_id),
            Step.REQUEUE: lambda: self._requeue(record, order),
            Step.RELEASE: lambda: self._scheduler.release(record.job_id),
            Step.START_NOW: lambda: self._start_now(record, order),
            Step.CANCEL: lambda: self._scheduler.cancel(record.job_id),
        }
        if step is not Step.WAIT:
            activity.logger.info("%s job %s for %s", step.value, record.job_id, order.advice.key)
            await calls[step]()

    async def _mark(self, record: JobRecord, order: ActOrder) -> None:
        await self._scheduler.constrain(record.job_id, admin_comment=self._marked(record, order))

    async def _requeue(self, record: JobRecord, order: ActOrder) -> None:
        """Put an ended attempt back and constrain it without another look: nobody can have changed the list of a job
        that had ended, and where Slurm's delay is short each moment counts. Where nothing is to be changed the job is
        let go at once: nothing is left to do for which a mark would be needed."""
        await self._scheduler.requeue(record.job_id)
        if list_changes(record, order):
            await self._constrain(record, order, mark=True)
        elif order.clear_delay:
            await self._start_now(record, order)
        else:
            await self._unmark(record, order)

    async def _start_now(self, record: JobRecord, order: ActOrder) -> None:
        """Clear the delay and leave the account, in one request: there is no hold of ours that the mark could name."""
        await self._scheduler.start_now(record.job_id, admin_comment=self._account(record, order))

    async def _constrain(self, record: JobRecord, order: ActOrder, *, mark: bool) -> None:
        """Set the exclusions, and with them the mark where it belongs and is missing."""
        comment = self._marked(record, order) if mark else None
        changes = list_changes(record, order)
        try:
            await self._scheduler.constrain(
                record.job_id, exclude=changes.pop(record.job_id, None), admin_comment=comment
            )
            for component, exclude in changes.items():
                await self._scheduler.constrain(component, exclude=exclude)
        except NotPermitted:
            raise
        except Refused as error:
            raise ListRefused(str(error)) from error

    async def _less_what_is_refused(self, order: ActOrder, *, everything: bool) -> ActOrder:
        """Return `order` less the nodes that the cluster does not know: for one such name Slurm refuses a whole list,
        however often it is asked."""
        if everything:
            return order.model_copy(update={"unable": order.advice.exclude, "withdraw": ()})
        known = {node.name for node in await self._scheduler.nodes()}
        unable = tuple(node for node in order.advice.exclude if node not in known)
        return order.model_copy(update={"unable": unable})

    def _marked(self, record: JobRecord, order: ActOrder) -> str:
        marker = Marker(holds=order.advice.key, since=self._clock(), why=order.advice.reason[:200])
        return write_marker(record.admin_comment, marker)

    async def _unmark(self, record: JobRecord, order: ActOrder) -> None:
        await self._scheduler.constrain(record.job_id, admin_comment=self._account(record, order))

    def _account(self, record: JobRecord, order: ActOrder) -> str:
        account = Account(did=order.advice.key, why=order.advice.reason[:200])
        return write_marker(record.admin_comment, account)
