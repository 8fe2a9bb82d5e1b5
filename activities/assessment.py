"""What attribution and decision are asked, and what they answer, for one attempt of one job."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from activities.attribution.protocol import Question
from activities.logs.protocol import LogCursor
from activities.scheduler.protocol import JobRecord, JobState
from recovery.arrays import ArrayStanding
from recovery.attribution.incident import LogLine
from recovery.model import Exclusion, JobKey, Mode, NodeName, Progress, SymptomKind, Value, Verdict
from recovery.opinion import Opinion
from recovery.optin import OptIn
from recovery.policy import Decision, Ending, PastAttempt, PolicySettings, Situation
from recovery.suspects import Suspicion


class Terms(Value):
    """What the operator's configuration allows for a job, as of the last time the worker told."""

    mode: Mode = Mode.OBSERVE
    acknowledged: bool = False
    """The operator's ``acknowledge_scheduler_actions``: without it nothing is ever done to the scheduler."""
    act_partitions: tuple[str, ...] = ()
    """Only jobs of these partitions may be acted on; empty: of all."""
    approval: bool = False
    advice_lifetime_s: float = 900.0
    exclusion_hours: float = 24.0
    clear_requeue_delay: bool = True
    override_no_requeue: bool = False
    second_opinion_s: float = 0.0
    """How long a service of the site is listened to for a second opinion; 0: there is none, and nobody is asked."""
    resubmit: bool = False
    """Submit a job anew that can't be requeued."""
    no_requeue_exit_code: int = 93
    checkpoint_grace_s: float = 60.0

    def mode_in(self, partition: str) -> Mode:
        """Return how far relight may go with a job of `partition`, whatever the job itself wants."""
        here = not self.act_partitions or partition in self.act_partitions
        return self.mode if self.acknowledged and here else Mode.OBSERVE

    @property
    def advice_lifetime(self) -> timedelta:
        """How long an advice stays valid."""
        return timedelta(seconds=self.advice_lifetime_s)

    @classmethod
    def of(
        cls,
        policy: PolicySettings,
        *,
        mode: Mode,
        acknowledged: bool,
        act_partitions: tuple[str, ...] = (),
        second_opinion_s: float = 0.0,
    ) -> Terms:
        """Return the terms that a cluster's settings give."""
        return cls(
            mode=mode,
            acknowledged=acknowledged,
            act_partitions=act_partitions,
            approval=policy.approval,
            advice_lifetime_s=policy.advice_lifetime_s,
            exclusion_hours=policy.exclusion_hours,
            clear_requeue_delay=policy.clear_requeue_delay,
            override_no_requeue=policy.override_no_requeue,
            second_opinion_s=second_opinion_s,
            resubmit=policy.resubmit,
            no_requeue_exit_code=policy.no_requeue_exit_code,
            checkpoint_grace_s=policy.checkpoint_grace_s,
        )


class Background(Value):
    """What a decision looks at beside the attempt itself."""

    optin: OptIn
    past: tuple[PastAttempt, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    user_excluded: tuple[NodeName, ...] = ()
    opinion: Opinion | None = None
    """What a service has said of this attempt before."""


class AttributeOrder(Value):
    """Which attempt to attribute, as the watch saw it."""

    job: JobKey
    attempt: int = Field(ge=0)
    record: JobRecord
    """As the watch read it last: after a requeue by others, the next attempt's."""
    requeued: bool = False
    symptom: SymptomKind
    """What the watch has established by itself; NONE for a line that only may be fatal."""
    nodes: tuple[NodeName, ...]
    """The attempt's allocation."""
    began: tuple[LogCursor, ...] = ()
    """Where the attempt's output begins."""
    ended: tuple[LogCursor, ...] = ()
    """Where it ends, in the sources of which that is known: what stands behind is the next attempt's."""
    progress: Progress = Progress()
    background: Background
    decide_too: bool = False
    """Nobody else has to be heard: decide in the same breath."""

    @property
    def next_has_started(self) -> bool:
        """Whether the record is of the attempt after this one, and that one may have written already."""
        return self.requeued and self.record.state is not JobState.PENDING

    @property
    def own_files(self) -> tuple[str, ...]:
        """The files that hold the attempt's output from their first byte on; none where that is not known."""
        if self.next_has_started:
            return ()
        return tuple(each.source for each in self.began if each.source.startswith("/") and each.offset == 0)

    @property
    def failed(self) -> bool:
        """Whether the attempt has failed beyond doubt: a fatal line alone may be a quotation."""
        return self.requeued or self.symptom is not SymptomKind.NONE


class Decided(Value):
    """The decision with the operator's terms at that moment."""

    decision: Decision
    terms: Terms
    decided_at: datetime


class Attribution(Value):
    """Why, and what the scheduler shows of the attempt and its nodes."""

    verdict: Verdict
    ending: Ending
    usable_nodes: frozenset[NodeName] | None = None
    attributed_at: datetime
    opinion: Opinion | None = None
    """What a service says, where it was there in time or before."""
    suspicions: tuple[Suspicion, ...] = ()
    """What failures of other jobs say against nodes of the attempt."""
    decided: Decided | None = None
    """What to do about it; None: that is still to be decided."""


def question_of(
    order: AttributeOrder, *, key: str = "", verdict: Verdict | None = None, lines: tuple[LogLine, ...] = ()
) -> Question:
    """Return what a service of the site is asked about the attempt of `order`."""
    job, record = order.job, order.record
    return Question(
        job=job,
        attempt=order.attempt,
        key=key or f"{job.workflow_id}@{int(job.submitted_at.timestamp())}#{order.attempt}",
        job_name=record.name,
        user=record.user,
        partition=record.partition,
        failed=order.failed,
        symptom=order.symptom,
        ending=ending_of(record, requeued=order.requeued, nodes=order.nodes),
        nodes=order.nodes,
        started_at=None if order.requeued else record.started_at,
        ended_at=None if order.requeued else record.ended_at,
        progress=order.progress,
        own_files=order.own_files,
        lines=lines,
        verdict=verdict,
    )


def situation_of(
    order: AttributeOrder, attribution: Attribution, *, now: datetime, array: ArrayStanding | None = None
) -> Situation:
    """Return what is to be decided on, once the attempt of `order` is attributed."""
    background = order.background
    return Situation(
        job=order.job,
        attempt=order.attempt,
        now=now,
        optin=background.optin,
        ending=attribution.ending,
        verdict=attribution.verdict,
        progress=order.progress,
        nodes=order.nodes,
        past=background.past,
        exclusions=background.exclusions,
        usable_nodes=attribution.usable_nodes,
        user_excluded=background.user_excluded,
        opinion=attribution.opinion,
        array=array,
        suspicions=attribution.suspicions,
    )


def ending_of(record: JobRecord, *, requeued: bool, nodes: tuple[NodeName, ...]) -> Ending:
    """Return how the attempt on `nodes` stands; after a requeue by others `record` is the next attempt's."""
    if requeued:
        return Ending(state="REQUEUED", requeued=True, requeueable=record.requeueable, node_count=record.node_count)
    return Ending(
        state=record.state.value,
        exit_code=record.exit_code,
        exit_signal=record.exit_signal,
        cancelled_by=record.cancelled_by,
        requeueable=record.requeueable,
        node_count=max(record.node_count, len(nodes)),
    )
