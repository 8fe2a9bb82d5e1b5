"""Carrying an advice out by another job, where the old one can't be requeued: read all jobs, take the one step that
they call for, read again, until nothing is left (see `resubmission`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.scheduler.acting import NO_ACTS_HERE, acting
from activities.scheduler.lineage import Lineage, read_lineage, write_lineage
from activities.scheduler.marker import Account, Replaced, carries_mark, write_marker
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
    look,
    next_step,
)
from activities.scheduler.site import Known, SiteReader
from activities.scheduler.submission import Irrecoverable, Resubmission, Submission
from recovery.model import JobId, Reconciliation

MAX_STEPS = 200
SETTLE_S = 0.5
REMEMBERED = timedelta(seconds=300)
"""How long an ended job stays listed where the site's MinJobAge is not known: Slurm's own default."""
MARGIN = timedelta(seconds=60)
STALLED = timedelta(seconds=30)
"""What takes longer may be the look of a process that was stopped. Another try may have begun meanwhile."""

ON_THE_WAY_TO_RELEASE = (Step.MARK_OLD, Step.CANCEL_OLD, Step.WAIT, Step.RELEASE)

Clock = Callable[[], datetime]


@dataclass
class Trying:
    """What one try of an order remembers between its looks."""

    looked_at: datetime
    """When its last look began."""
    sent_at: datetime | None
    """When a submission may have been sent last, by this try or another one; None: none was."""
    ended_by_us: bool = False
    """This try sent the old job's cancel."""
    vouched_for: JobId = ""
    """A new job of which it has seen all that matters, and has watched since."""


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
        now = self._clock()
        trying = Trying(looked_at=now, sent_at=now if activity.info().attempt > 1 else None)
        for _ in range(MAX_STEPS):
            settled = await self._look_and_step(trying, order)
            if settled is not None:
                return settled
            await asyncio.sleep(self._settle_s)
        raise ApplicationError(
            f"the job submitted for {order.advice.job.job_id} did not come to rest in {MAX_STEPS} steps",
            type="NotSettled",
        )

    async def _look_and_step(self, trying: Trying, order: ResubmitOrder) -> Reconciliation | None:
        """Take the step that a look at all jobs calls for; None: look again."""
        looked_at = self._clock()
        if looked_at - trying.looked_at > STALLED:
            trying.vouched_for = ""
        trying.looked_at = looked_at
        sight = look((await self._scheduler.jobs()).jobs, order)
        now = self._clock()
        step = next_step(sight, order, now, sent_at=trying.sent_at, ended_by_us=trying.ended_by_us)
        if isinstance(step, Reconciliation):
            return step
        if step is Step.SUBMIT:
            if trying.sent_at is None and now - looked_at > STALLED:
                trying.sent_at = now
                return None
            if refused := await self._why_not_submit(order, again=trying.sent_at is not None):
                return refused
            lineage = order.lineage(sight, since=looked_at, first=trying.sent_at is None)
            trying.sent_at = self._clock()
            return await self._submit(order, sight, lineage)
        if refused := await self._why_not_release(step, sight, order, trying):
            return refused
        if step is not Step.WAIT:
            trying.ended_by_us |= step is Step.CANCEL_OLD
            await self._take(step, sight, order)
        return None

    async def _why_not_release(
        self, step: Step, sight: Sight, order: ResubmitOrder, trying: Trying
    ) -> Reconciliation | None:
        """Why the new job stays held, where this try finds it so long after the order that it can't tell any more what
        happened; None: it does not."""
        kept = sight.kept
        if step not in ON_THE_WAY_TO_RELEASE or kept is None or kept.job_id == trying.vouched_for:
            return None
        if missed := await self._missed(kept, sight, order, again=trying.sent_at is not None):
            detail = f"{missed} can't be told any more: job {kept.job_id} stays held. Release or cancel it by hand"
            return Reconciliation.abandoned("not_submitted", self._clock(), detail)
        trying.vouched_for = kept.job_id
        return None

    async def _missed(self, kept: JobRecord, sight: Sight, order: ResubmitOrder, *, again: bool) -> str:
        """What of the order's story may have happened unseen and be forgotten; empty: nothing that matters."""
        lineage = read_lineage(kept.comment)
        if lineage is None or carries_mark(kept.admin_comment, order.advice.key):
            return ""
        if sight.old is None and not lineage.old_is_over:
            return f"how job {lineage.of} ended"
        if again and not lineage.is_of_the_oldest(kept) and await self._forgets_by_now(order):
            return "whether another job ran in its place"
        return ""

    async def _why_not_submit(self, order: ResubmitOrder, *, again: bool) -> Reconciliation | None:
        if not self._may_act_in(order.job.partition):
            return Reconciliation.abandoned("mode_observe", self._clock(), NO_ACTS_HERE)
        if order.job.array_job_id or order.job.components:
            detail = "a task of an array, or a het job, can't be submitted by itself as it was"
            return Reconciliation.abandoned("not_submitted", self._clock(), detail)
        if again and await self._forgets_by_now(order):
            detail = "whether it was submitted can't be told any more: it may have come and gone. Submit it by hand"
            return Reconciliation.abandoned("not_submitted", self._clock(), detail)
        return None

    async def _forgets_by_now(self, order: ResubmitOrder) -> bool:
        """Whether a job that was submitted for the order may have ended so long ago that no look shows it."""
        return self._clock() - order.ordered_at > await self._remembered() - MARGIN

    async def _submit(self, order: ResubmitOrder, sight: Sight, lineage: Lineage) -> Reconciliation | None:
        """Submit, held. Returns why that can't be; what came of it the next look shows."""
        scheduler, job = self._scheduler, sight.old or order.job
        try:
            if not isinstance(scheduler, Resubmission):
                raise Irrecoverable("this transport can't submit a job: use scheduler kind cli or ssh")
            submission = await scheduler.submission_of(job)
            known = frozenset(node.name for node in await scheduler.nodes())
            job_id = await scheduler.submit(_in_place_of(submission, order, lineage, known))
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
                case Step.MARK_OLD:
                    await self._mark(sight.old, kept, order)
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

    async def _mark(self, old: JobRecord | None, new: JobRecord, order: ResubmitOrder) -> None:
        if old is not None:
            word = Replaced(ends_for=order.advice.key, since=self._clock(), why=f"job {new.job_id} is in its place")
            await self._scheduler.constrain(old.job_id, admin_comment=write_marker(old.admin_comment, word))

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


def _in_place_of(submission: Submission, order: ResubmitOrder, lineage: Lineage, known: frozenset[str]) -> Submission:
    comment = write_lineage(lineage, submission.comment, order.optin)
    if comment is None:
        raise Irrecoverable("its comment has no room for the mark by which a second submission is avoided")
    exclude = order.exclusions(submission, known=known)
    return submission.model_copy(update={"comment": comment, "exclude": exclude, "held": True})
