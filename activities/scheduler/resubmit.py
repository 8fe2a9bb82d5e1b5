"""Carrying an advice out by another job, where the old one can't be requeued: read all jobs, take the one step that
they call for, read again, until nothing is left (see `resubmission`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.scheduler.acting import acting
from activities.scheduler.marker import Account, write_marker
from activities.scheduler.protocol import (
    JobRecord,
    JobUnknown,
    Refused,
    Scheduler,
    SchedulerError,
)
from activities.scheduler.resubmission import (
    ResubmitOrder,
    Sight,
    Step,
    comment_with,
    look,
    next_step,
)
from activities.scheduler.site import Known, SiteReader
from activities.scheduler.submission import Irrecoverable, Resubmission, Submission
from recovery.model import Reconciliation

MAX_STEPS = 200
SETTLE_S = 0.5
REMEMBERED = timedelta(seconds=300)
"""How long an ended job stays listed where the site's MinJobAge is not known: Slurm's own default."""
MARGIN = timedelta(seconds=60)

Clock = Callable[[], datetime]


class Resubmitter:
    """Submits jobs of one cluster anew, as a Temporal activity on its act queue."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        may_act_in: Callable[[str], bool] = lambda partition: True,  # noqa: ARG005
        settle_s: float = SETTLE_S,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """`may_act_in`: whether the operator's settings, as this worker was started with, allow acts in a partition."""
        self._scheduler = scheduler
        self._may_act_in = may_act_in
        self._settle_s = settle_s
        self._clock = clock

    @activity.defn
    async def submit_anew(self, order: ResubmitOrder) -> Reconciliation:
        """Have another job run in the place of the order's, and return what a fresh look at the scheduler says of it.

        Raises a retryable `ApplicationError`: ``SchedulerUnavailable`` without an answer, ``NotSettled`` when the
        scheduler did not come to rest within `MAX_STEPS` steps. To repeat the call is always safe.
        """
        async with acting():
            return await self._until_settled(order)

    async def _until_settled(self, order: ResubmitOrder) -> Reconciliation:
        again = activity.info().attempt > 1
        sent_at, ended_by_us = (self._clock() if again else None), again
        for _ in range(MAX_STEPS):
            sight = look((await self._scheduler.jobs()).jobs, order)
            step = next_step(sight, order, self._clock(), sent_at=sent_at, ended_by_us=ended_by_us)
            if isinstance(step, Reconciliation):
                return step
            if step is Step.SUBMIT:
                if refused := await self._why_not(order, again=again):
                    return refused
                sent_at, again = self._clock(), True
                if refused := await self._submit(order, sight):
                    return refused
            elif step is not Step.WAIT:
                ended_by_us |= step is Step.CANCEL_OLD
                await self._take(step, sight, order)
            await asyncio.sleep(self._settle_s)
        raise ApplicationError(
            f"the job submitted for {order.advice.job.job_id} did not come to rest in {MAX_STEPS} steps",
            type="NotSettled",
        )

    async def _why_not(self, order: ResubmitOrder, *, again: bool) -> Reconciliation | None:
        """Why nothing may be submitted; None: it may."""
        if not self._may_act_in(order.job.partition):
            return Reconciliation.abandoned(
                "mode_observe", self._clock(), "the operator's settings do not allow acts here any more"
            )
        if order.job.array_job_id or order.job.components:
            detail = "a task of an array, or a het job, can't be submitted by itself as it was"
            return Reconciliation.abandoned("not_submitted", self._clock(), detail)
        if again and self._clock() - order.ordered_at > await self._remembered() - MARGIN:
            detail = "whether it was submitted can't be told any more: it may have come and gone. Submit it by hand"
            return Reconciliation.abandoned("not_submitted", self._clock(), detail)
        return None

    async def _submit(self, order: ResubmitOrder, sight: Sight) -> Reconciliation | None:
        """Submit, held. Returns why that can't be; what came of it the next look shows."""
        scheduler, job = self._scheduler, sight.old or order.job
        try:
            if not isinstance(scheduler, Resubmission):
                raise Irrecoverable("this transport can't submit a job: use scheduler kind cli or ssh")
            submission = await scheduler.submission_of(job)
            known = frozenset(node.name for node in await scheduler.nodes())
            job_id = await scheduler.submit(_in_place_of(submission, order, known))
        except (Refused, JobUnknown) as error:
            return Reconciliation.abandoned("not_submitted", self._clock(), str(error))
        activity.logger.info("submitted job %s, held, for %s", job_id, order.advice.key)
        return None

    async def _take(self, step: Step, sight: Sight, order: ResubmitOrder) -> None:
        """Call the scheduler for `step`. A refusal only says that the reading was older than it."""
        kept = sight.kept
        if kept is None:
            raise ValueError(f"{step.value} without a new job")
        activity.logger.info("%s for %s, job %s", step.value, order.advice.key, kept.job_id)
        try:
            match step:
                case Step.CANCEL_OLD:
                    await self._scheduler.cancel(order.advice.job.job_id)
                case Step.CANCEL_NEW:
                    await self._scheduler.cancel(kept.job_id)
                case Step.CANCEL_TWIN:
                    for twin in sight.twins:
                        await self._scheduler.cancel(twin.job_id)
                case Step.RELEASE:
                    await self._scheduler.release(kept.job_id)
                    await self._account(kept, order)
                case Step.ACCOUNT:
                    await self._account(kept, order)
        except (Refused, JobUnknown) as error:
            activity.logger.warning("%s was refused: %s", step.value, error)

    async def _account(self, new: JobRecord, order: ResubmitOrder) -> None:
        account = Account(did=order.advice.key, why=f"submitted in place of job {order.advice.job.job_id}")
        await self._scheduler.constrain(new.job_id, admin_comment=write_marker(new.admin_comment, account))

    async def _remembered(self) -> timedelta:
        """How long an ended job stays listed here."""
        if not isinstance(self._scheduler, SiteReader):
            return REMEMBERED
        try:
            age = (await self._scheduler.facts()).min_job_age
        except SchedulerError:
            return REMEMBERED
        if not isinstance(age, Known):
            return REMEMBERED
        return age.value or timedelta.max / 2


def _in_place_of(submission: Submission, order: ResubmitOrder, known: frozenset[str]) -> Submission:
    comment = comment_with(order, submission.comment)
    if comment is None:
        raise Irrecoverable("its comment has no room for the mark by which a second submission is avoided")
    exclude = order.exclusions(submission, known=known)
    return submission.model_copy(update={"comment": comment, "exclude": exclude, "held": True})
