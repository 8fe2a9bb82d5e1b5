"""A stage for stories about workflows: the real workflows and policy, and a world around them that the test plays.

The activities have their real names, models and queues, so a story reads as the job's own: the watch reports, then an
attribution answers, then an order reaches the act.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy

from activities.adopt import RecoveryStart
from activities.arrays import ArrayDesk
from activities.assessment import AttributeOrder, Attribution, Decided, Terms, situation_of
from activities.chains import ChainOrder, Stranded
from activities.discovery import Discovered, DiscoverOrder
from activities.evidence import EvidenceOrder, KeptEvidence
from activities.findings import Finding, WatchOrder
from activities.governor import GovernorDesk, cluster_workflow_id
from activities.scheduler.protocol import ClusterReading
from activities.scheduler.resubmission import ResubmitOrder
from activities.scheduler.steps import ActOrder
from activities.scheduler.successors import SuccessorOrder
from activities.second_opinion import OpinionOrder, SecondOpinion
from recovery.arrays import ArrayStanding, TaskFailed
from recovery.audit import AuditEvent, AuditKind
from recovery.governor import Granted, GrantRequest, Ruling
from recovery.model import JobKey, Reconciliation, Verdict
from recovery.notices import Notice
from recovery.opinion import Heard, Opinion
from recovery.optin import OptIn
from recovery.policy import Ending, PolicySettings, Situation, decide
from recovery.trace import RecoveryTrace
from tests.workflows import parts
from workflows.cluster import ClusterWatch
from workflows.cluster_state import ClusterStart
from workflows.job import JobRecovery
from workflows.options import CLUSTERS_QUEUE, act_queue, opinion_queue, recovery_queue, watch_queue
from workflows.overrides import Answer, Request
from workflows.state import RecoveryReport, RecoveryState

PATIENCE_S = 60.0
"""How long a test waits, in real time, for what its story says comes next."""
BEAT_S = 0.02
STICKY_TIMEOUT = timedelta(seconds=0.3)
"""How long a workflow waits for a worker that was stopped."""

_numbers = itertools.count(1)

STRICT_SANDBOX = SandboxedWorkflowRunner(
    SandboxRestrictions.default.with_import_notification_policy(
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
)
"""Tells of every module that is loaded late or twice: both cost a workflow task seconds on a busy machine."""


class Trouble:
    """An activity's bad days: what it raises instead of an answer, for how many tries, or that it says nothing."""

    def __init__(self) -> None:
        self._failures = 0
        self._silent = False
        self._final = False
        self._delay_s = 0.0

    def fails(self, times: int = 1_000_000) -> None:
        """Fail the next `times` tries."""
        self._failures = times

    def takes(self, delay_s: float) -> None:
        """Answer late."""
        self._delay_s = delay_s

    def is_silent(self) -> None:
        """Give no answer at all."""
        self._silent = True

    def gives_up(self) -> None:
        """Fail for good: no further try."""
        self.fails()
        self._final = True

    def is_over(self) -> None:
        """Answer again."""
        self._failures, self._silent, self._final = 0, False, False

    @property
    def strikes(self) -> bool:
        """Whether the next try gives no answer."""
        return self._silent or bool(self._failures)

    async def strike(self) -> None:
        """Wait, hang or raise where the story says so."""
        await asyncio.sleep(self._delay_s)
        while self._silent:
            await asyncio.sleep(BEAT_S)
        if self._failures:
            self._failures -= 1
            raise ApplicationError("not today", type="Trouble", non_retryable=self._final)


class Stage:
    """The world of one cluster. What reached it is kept in lists, in the order in which it came."""

    def __init__(self, client: Client, cluster: str, clock: Callable[[], Awaitable[datetime]]) -> None:
        self.client = client
        self.cluster = cluster
        self.clock = clock
        self.terms: Terms = parts.ACT
        """The operator's configuration, as the next decision finds it."""
        self.policy = PolicySettings()
        self.verdict: Verdict = parts.no_cause()
        """What the next attribution says."""
        self.found_state = ""
        """The scheduler's state of the attempt, where the next attribution finds another one than the watch did."""
        self.outcomes: list[Callable[[ActOrder, datetime], Reconciliation]] = []
        """What the scheduler shows after the next acts; when empty, what was ordered."""
        self.rulings: list[Ruling] = []
        """What the governor says next; when empty, that everything may go on."""
        self.desk: GovernorDesk | None = None
        """Where the cluster's real governor is asked instead."""
        self.reading = ClusterReading(read_at=parts.SUBMITTED_AT, jobs=())
        """What the scheduler showed last, where a task's siblings are looked for."""
        self.attribution, self.decision, self.act, self.trail, self.telemetry = (Trouble() for _ in range(5))
        self.governor, self.webhook, self.evidence, self.comparison, self.counsel = (Trouble() for _ in range(5))
        self.opinion: Heard | None = None
        """What the site's attribution service says; None: it still thinks."""
        self.fast_opinion: Opinion | None = None
        """What it says along with relight's own verdict."""
        self.consulted: list[OpinionOrder] = []
        self.answered = 0
        """How many second opinions were given."""
        self.watches: list[WatchOrder] = []
        self.attributed: list[AttributeOrder] = []
        self.situations: list[Situation] = []
        self.kept: list[EvidenceOrder] = []
        self.orders: list[ActOrder] = []
        self.resubmissions: list[ResubmitOrder] = []
        self.submitted: Callable[[ResubmitOrder, datetime], Reconciliation] = parts.submitted_as("77")
        """What becomes of the next resubmissions."""
        self.chained: list[SuccessorOrder] = []
        self.next_in_chain: Callable[[SuccessorOrder, datetime], Reconciliation] = parts.chain_goes_on
        self.chains: list[ChainOrder] = []
        self.stranded = Stranded()
        """The jobs that wait for a failed one in vain."""
        self.deliveries: list[list[AuditEvent]] = []
        """All batches that reached the trail, repeated ones too."""
        self.traces: list[RecoveryTrace] = []
        self.asked: list[GrantRequest] = []
        self.notices: list[Notice] = []
        self.discoveries: list[DiscoverOrder] = []
        self.discovery_leases = 14
        self.program: list[str] = []
        """What reached the world, one word each: ``audit:advised``, ``act:restart``, ..."""
        self._lost_answers = 0
        self._scenes: deque[parts.Scene | timedelta] = deque()
        self._handles: list[WorkflowHandle[Any, Any]] = []

    # What the test says.

    def reports(self, *scenes: parts.Scene | timedelta) -> None:
        """Let the watch report `scenes` one after the other; a duration is a time in which nothing happens."""
        self._scenes.extend(scenes)

    def lose_answers(self, times: int) -> None:
        """Let the trail store the next `times` deliveries and fail to say so."""
        self._lost_answers = times

    async def adopt(
        self, terms: Terms = parts.ACT, optin: OptIn | None = None, *, job_id: str = "", **facts: Any
    ) -> Job:
        """Take a job under guard; `facts` are of its record."""
        self.terms = terms
        key = self.key(job_id or str(1_000 + next(_numbers)))
        return await self.start(parts.start(key, terms, optin, **facts))

    def key(self, job_id: str) -> JobKey:
        """The identity of a job of this cluster."""
        return JobKey(cluster=self.cluster, job_id=job_id, submitted_at=parts.SUBMITTED_AT)

    async def start(self, start: RecoveryStart, state: RecoveryState | None = None) -> Job:
        """Start a job's workflow as `activities.adopt` does; with a `state`, as its earlier run does."""
        handle: WorkflowHandle[Any, RecoveryReport] = await self.client.start_workflow(
            "JobRecovery",
            args=[start, state],
            id=start.job.workflow_id,
            task_queue=recovery_queue(start.job.cluster),
            result_type=RecoveryReport,
            static_summary=f"pretrain · job {start.job.job_id} · {self.cluster}",
        )
        self.keep(handle)
        return Job(self, start.job, handle)

    async def look_after_cluster(self, **known: Any) -> WorkflowHandle[ClusterWatch, None]:
        """Start the cluster's workflow; with what is `known`, as its earlier run does."""
        handle: WorkflowHandle[ClusterWatch, None] = await self.client.start_workflow(
            ClusterWatch.run,
            ClusterStart(cluster=self.cluster, lease=timedelta(minutes=1), **known),
            id=cluster_workflow_id(self.cluster),
            task_queue=CLUSTERS_QUEUE,
        )
        self.keep(handle)
        return handle

    def keep(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Terminate the workflow when the story is over."""
        self._handles.append(handle)

    # What the test looks at.

    async def watched_on(self) -> None:
        """Wait until all scenes are reported and the next watch has begun."""
        watches = len(self.watches)
        await eventually(lambda: not self._scenes and len(self.watches) > watches)

    @property
    def audit(self) -> list[AuditEvent]:
        """What the trail holds: the first event of each key."""
        stored: dict[str, AuditEvent] = {}
        for event in itertools.chain.from_iterable(self.deliveries):
            stored.setdefault(event.key, event)
        return list(stored.values())

    def told(self, kind: AuditKind) -> list[str]:
        """The summaries of the events of `kind` in the trail."""
        return [event.summary for event in self.audit if event.kind is kind]

    # The activities.

    @activity.defn
    async def watch_attempt(self, order: WatchOrder) -> Finding:
        """Report the next scene. A watch that was cancelled reports nothing more, though it hears of that late."""
        if activity.info().attempt == 1:
            self.watches.append(order)
        while not self._scenes or await self._was_cancelled(order):
            activity.heartbeat()
            await asyncio.sleep(BEAT_S)
        scene = self._scenes.popleft()
        if isinstance(scene, timedelta):
            raise ApplicationError("time passes", next_retry_delay=scene)
        return scene(order, await self.clock())

    async def _was_cancelled(self, order: WatchOrder) -> bool:
        description = await self.client.get_workflow_handle(order.job.workflow_id).describe()
        mine = activity.info()
        started = {
            pending.activity_id
            for pending in description.raw_description.pending_activities
            if pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        }
        return description.run_id != mine.workflow_run_id or mine.activity_id not in started

    @activity.defn
    async def attribute(self, order: AttributeOrder) -> Attribution:
        """Answer with the story's verdict."""
        self.attributed.append(order)
        await self.attribution.strike()
        self.program.append("attribute")
        state = "REQUEUED" if order.requeued else self.found_state or order.record.state.value
        ending = Ending(
            state=state,
            requeued=order.requeued,
            exit_code=order.record.exit_code,
            cancelled_by=order.record.cancelled_by,
            node_count=len(order.nodes),
        )
        attribution = Attribution(
            verdict=self.verdict,
            ending=ending,
            opinion=self.fast_opinion or order.background.opinion,
            attributed_at=await self.clock(),
        )
        if not order.decide_too or self.decision.strikes:
            return attribution
        decided = await self.decide(situation_of(order, attribution, now=await self.clock()))
        return attribution.model_copy(update={"decided": decided})

    @activity.defn
    async def decide(self, situation: Situation) -> Decided:
        """Decide by the real policy under the story's configuration."""
        self.situations.append(situation)
        await self.decision.strike()
        self.program.append("decide")
        return Decided(decision=decide(situation, self.policy), terms=self.terms, decided_at=await self.clock())

    @activity.defn
    async def second_opinion(self, order: OpinionOrder) -> SecondOpinion:
        """Say what the story does, once it does, with the real policy's answer to it."""
        self.consulted.append(order)
        await self.counsel.strike()
        while self.opinion is None:
            activity.heartbeat()
            await asyncio.sleep(BEAT_S)
        self.answered += 1
        if not isinstance(self.opinion, Opinion):
            return SecondOpinion(heard=self.opinion)
        known = order.attribution.model_copy(update={"opinion": self.opinion})
        decided = Decided(
            decision=decide(situation_of(order.attempt, known, now=await self.clock()), self.policy),
            terms=self.terms,
            decided_at=await self.clock(),
        )
        return SecondOpinion(heard=self.opinion, decided=decided)

    @activity.defn
    async def compare_task(self, failed: TaskFailed) -> ArrayStanding:
        """Ask the cluster's workflow, as in production."""
        await self.comparison.strike()
        self.program.append("compare")
        return await ArrayDesk(self.client, self.cluster, self).compare_task(failed)  # type: ignore[arg-type]

    @activity.defn
    async def find_stranded(self, order: ChainOrder) -> Stranded:
        """Name the jobs that the story says."""
        self.chains.append(order)
        return self.stranded

    @activity.defn
    async def ask_governor(self, request: GrantRequest) -> Ruling:
        """Rule as the story says, or as the cluster's real governor does."""
        self.asked.append(request)
        await self.governor.strike()
        if self.desk is not None:
            return await self.desk.ask_governor(request)
        return self.rulings.pop(0) if self.rulings else Granted()

    @activity.defn
    async def notify(self, notice: Notice) -> None:
        """Take a notice."""
        await self.webhook.strike()
        self.notices.append(notice)

    @activity.defn
    async def keep_evidence(self, order: EvidenceOrder) -> KeptEvidence:
        """Keep nothing, and say so."""
        self.kept.append(order)
        await self.evidence.strike()
        self.program.append("evidence")
        return KeptEvidence(
            summary="kept the end of its output in /evidence/attempt-0.1.txt",
            file="/evidence/attempt-0.1.txt",
            host="worker1",
            output="iteration 12",
            kept_at=await self.clock(),
        )

    @activity.defn
    async def carry_out(self, order: ActOrder) -> Reconciliation:
        """Show what the story says of the scheduler."""
        self.orders.append(order)
        await self.act.strike()
        self.program.append(f"act:{order.advice.action.value}")
        outcome = self.outcomes.pop(0) if self.outcomes else parts.done
        return outcome(order, await self.clock())

    @activity.defn
    async def submit_anew(self, order: ResubmitOrder) -> Reconciliation:
        """Show what the story says of the job in the place of another."""
        self.resubmissions.append(order)
        await self.act.strike()
        self.program.append("resubmit")
        return self.submitted(order, await self.clock())

    @activity.defn
    async def constrain_successors(self, order: SuccessorOrder) -> Reconciliation:
        """Show that the next job of a chain is as ordered, or what the story says."""
        self.chained.append(order)
        await self.act.strike()
        self.program.append("chain")
        return self.next_in_chain(order, await self.clock())

    @activity.defn
    async def record_audit(self, events: list[AuditEvent]) -> None:
        """Store the events."""
        await self.trail.strike()
        self.deliveries.append(events)
        self.program += [f"audit:{event.kind.value}" for event in events]
        if self._lost_answers:
            self._lost_answers -= 1
            raise ApplicationError("stored, but the answer was lost", type="Trouble")

    @activity.defn
    async def export_recovery_trace(self, trace: RecoveryTrace) -> None:
        """Take the trace."""
        await self.telemetry.strike()
        self.traces.append(trace)
        self.program.append("trace")

    @activity.defn
    async def discover_jobs(self, order: DiscoverOrder) -> Discovered:
        """Find two jobs in each lease; the one after `discovery_leases` lasts."""
        self.discoveries.append(order)
        while len(self.discoveries) >= self.discovery_leases:
            activity.heartbeat()
            await asyncio.sleep(BEAT_S)
        return Discovered(adopted=2, listed=10)

    @asynccontextmanager
    async def open(self, **recovery_worker: Any) -> AsyncIterator[None]:
        """Serve all queues while the context is open."""
        self._recovery_worker = recovery_worker
        queues: tuple[tuple[str, Sequence[Callable[..., Any]]], ...] = (
            (watch_queue(self.cluster), [self.watch_attempt, self.discover_jobs]),
            (opinion_queue(self.cluster), [self.second_opinion]),
            (act_queue(self.cluster), [self.carry_out, self.submit_anew, self.constrain_successors]),
        )
        async with AsyncExitStack() as stack:
            for queue, activities in queues:
                await stack.enter_async_context(Worker(self.client, task_queue=queue, activities=activities))
            await self.go_on()
            stack.push_async_callback(self.pause_workflows)
            yield

    async def go_on(self) -> None:
        """Start the workers that run the workflows."""
        jobs = self._workflow_worker(
            recovery_queue(self.cluster),
            JobRecovery,
            [
                self.attribute,
                self.compare_task,
                self.find_stranded,
                self.decide,
                self.ask_governor,
                self.keep_evidence,
                self.record_audit,
                self.export_recovery_trace,
            ],
        )
        self._workflows = [jobs, self._workflow_worker(CLUSTERS_QUEUE, ClusterWatch, [self.notify])]
        self._running = [asyncio.create_task(worker.run()) for worker in self._workflows]

    def _workflow_worker(self, queue: str, workflow: type, activities: Sequence[Callable[..., Any]]) -> Worker:
        return Worker(
            self.client,
            task_queue=queue,
            workflows=[workflow],
            activities=activities,
            workflow_runner=STRICT_SANDBOX,
            workflow_failure_exception_types=[Exception],
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            **self._recovery_worker,
        )

    async def pause_workflows(self) -> None:
        """Stop the workers that run the workflows: what reaches them meanwhile comes to the next ones at once."""
        await asyncio.gather(*(worker.shutdown() for worker in self._workflows))
        await asyncio.gather(*self._running)

    async def close(self) -> None:
        """End what the story left running."""
        for handle in self._handles:
            if (await handle.describe()).close_time is None:
                await handle.terminate("the story is over")


class Job:
    """One job's workflow, as a person and as Temporal's own tools see it."""

    def __init__(self, stage: Stage, key: JobKey, handle: WorkflowHandle[Any, RecoveryReport]) -> None:
        self.stage = stage
        self.key = key
        self.handle = handle

    async def says(self, verb: str, request: Request) -> Answer:
        """Send an update."""
        answer: Answer = await self.handle.execute_update(verb, request, result_type=Answer)
        return answer

    async def insists(self, verb: str, request: Request) -> Answer:
        """Send an update, and again where it met the workflow just as that went on in a new run."""
        while True:
            try:
                return await self.says(verb, request)
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                    raise

    async def signals(self, verb: str, request: Request) -> None:
        """Send a signal."""
        await self.handle.signal(verb, request)

    async def state(self) -> RecoveryState:
        """Ask for the state."""
        state: RecoveryState = await self.handle.query("state", result_type=RecoveryState)
        return state

    async def until(self, holds: Callable[[RecoveryState], bool]) -> RecoveryState:
        """Wait until the state is as `holds` says."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds(state := await self.state()):
                await asyncio.sleep(BEAT_S)
        return state

    async def report(self) -> RecoveryReport:
        """Wait until the workflow has ended, skipping the time in which nothing happens."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.handle.result()

    async def events(self) -> list[str]:
        """The types of the events in the history of the current run."""
        return [_name(event.event_type) async for event in self.handle.fetch_history_events()]


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until `holds`, in real time."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(BEAT_S)


def _name(event_type: int) -> str:
    from temporalio.api.enums.v1 import EventType

    return EventType.Name(event_type).removeprefix("EVENT_TYPE_")  # type: ignore[arg-type]


async def real_clock() -> datetime:
    """The time of a server that does not skip any."""
    return datetime.now(UTC)
