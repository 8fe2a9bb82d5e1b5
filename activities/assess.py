"""From what an attempt said to what to do: attribution over its logs, and the decision under the operator's rules.

Both are activities although the domain behind them is pure: their answers stand in the workflow's history, so rules and
catalogue may change under running workflows without breaking a replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.assessment import AttributeOrder, Attribution, Decided, Terms, ending_of, question_of, situation_of
from activities.attempt_lines import AttemptLines
from activities.attribution.fast import asked_beside
from activities.attribution.protocol import AttributionService
from activities.logs.protocol import LogSource
from activities.metrics.protocol import MetricsAnswer, MetricSource, MetricsState, NoMetrics
from activities.scheduler.protocol import JobRecord, NodeReader, NodeRecord, SchedulerError
from activities.scheduler.site import Reservation, ReservationReader
from activities.suspicions import NoSuspicions, SuspicionReader
from activities.usable_nodes import usable_nodes
from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts
from recovery.attribution.observed import as_observed
from recovery.model import NodeName, Verdict
from recovery.opinion import Opinion
from recovery.policy import Ending, PolicySettings, Situation, decide
from recovery.redaction import redact
from recovery.signatures.catalogue import Catalogue
from recovery.suspects import Suspicion, program_of

AT_A_TIME = 8
"""Attributions that read and reckon at the same time: each may hold a whole log in memory."""
NODE_READ_TIMEOUT_S = 5.0
METRICS_TIMEOUT_S = 8.0
"""Beyond the bound that a source keeps by itself; the whole attribution has 15 s."""
UNDATED_METRICS_WINDOW = timedelta(minutes=2)
"""For an attempt of which nothing tells when it began: what was before may be another job's."""


class Assessor:
    """Attribution and decisions for one cluster, as Temporal activities."""

    def __init__(
        self,
        nodes: NodeReader,
        logs: LogSource,
        policy: PolicySettings,
        terms: Terms,
        metrics: MetricSource | None = None,
        service: AttributionService | None = None,
        suspicions: SuspicionReader | None = None,
        reservations: ReservationReader | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        """`catalogue`: what lines mean at this site; None: the packaged one."""
        self._reader = nodes
        self._reservation_reader = reservations
        self.lines = AttemptLines(logs)
        self._policy = policy
        self._terms = terms
        self._metrics = metrics or NoMetrics()
        self._service = service
        self._suspicions = suspicions or NoSuspicions()
        self._catalogue = catalogue
        self._room = asyncio.Semaphore(AT_A_TIME)

    @activity.defn
    async def attribute(self, order: AttributeOrder) -> Attribution:
        """Read what the attempt said and name cause, culprits and victims; where the order says so, decide too: one
        activity less for each of hundreds of jobs that fail at once."""
        with asked_beside(self._service, question_of(order)) as fast:
            attribution = await self._attribution(order)
            attribution = attribution.model_copy(update={"opinion": fast.heard() or order.background.opinion})
        if not order.decide_too:
            return attribution
        try:
            decided = self._decide(situation_of(order, attribution, now=datetime.now(UTC)))
        except Exception:  # noqa: BLE001 - whatever a rule may raise
            # The verdict is there and must not be lost with it; the decision gets tries of its own.
            activity.logger.exception("no decision on %s in the same breath", order.job)
            return attribution
        return attribution.model_copy(update={"decided": decided})

    async def _attribution(self, order: AttributeOrder) -> Attribution:
        asked_at = datetime.now(UTC)
        nodes, reservations, metrics, suspicions = await asyncio.gather(
            self._nodes(),
            self._reservations(order.record),
            self._samples(order, asked_at),
            self._suspicions.suspicions(),
        )
        ending = ending_of(order.record, requeued=order.requeued, nodes=order.nodes)
        async with self._room:
            verdict = await self._verdict(order, ending, next(iter(_failed(nodes, order.nodes)), ""), metrics)
        if metrics.reason:
            verdict = verdict.model_copy(update={"blind_to": (f"metrics {metrics.state}: {redact(metrics.reason)}",)})
        return Attribution(
            verdict=verdict,
            ending=ending,
            usable_nodes=usable_nodes(order.record, nodes, reservations),
            attributed_at=datetime.now(UTC),
            suspicions=_of_others(suspicions, order),
        )

    async def _verdict(
        self, order: AttributeOrder, ending: Ending, failed_node: NodeName, metrics: MetricsAnswer
    ) -> Verdict:
        facts = JobFacts(
            job_id=order.job.job_id,
            job_number=order.record.job_number,
            nodes=order.nodes,
            in_rank_order=not order.record.components,
            tasks_per_node=order.record.tasks_per_node,
            # Slurm requeues by itself when a node fails, and tells of the attempt's end nowhere else.
            state="NODE_FAIL" if ending.requeued and failed_node else ending.state,
            exit_code=ending.exit_code,
            exit_signal=ending.exit_signal,
            cancelled_by=ending.cancelled_by,
            reason=order.record.reason,
            batch_host=order.record.batch_host,
            failed_node=failed_node,
        )
        lines, now = await self.lines.of(order), datetime.now(UTC)
        incident = Incident(
            lines=lines,
            metrics=metrics.samples,
            facts=facts,
            now=now,
            silence=_silence(order, now),
            detected=order.symptom,
        )
        # Seconds of pure computing on a big log: the worker's loop has other jobs' heartbeats to send.
        return as_observed(await asyncio.to_thread(attribute, incident, self._catalogue), order.symptom)

    async def reconsider(self, order: AttributeOrder, attribution: Attribution, opinion: Opinion) -> Decided:
        """Decide anew on an attribution that a service has an opinion on, on the nodes as they are now."""
        nodes, reservations = await asyncio.gather(self._nodes(), self._reservations(order.record))
        usable = usable_nodes(order.record, nodes, reservations)
        known = attribution.model_copy(update={"usable_nodes": usable, "opinion": opinion})
        return self._decide(situation_of(order, known, now=datetime.now(UTC)))

    @activity.defn
    async def decide(self, situation: Situation) -> Decided:
        """Decide under the rules that this worker was started with."""
        return self._decide(situation)

    def _decide(self, situation: Situation) -> Decided:
        decision = decide(situation, self._policy)
        return Decided(decision=decision, terms=self._terms, decided_at=datetime.now(UTC))

    async def _nodes(self) -> Sequence[NodeRecord] | None:
        """Read the nodes; None where the scheduler gives no answer: unknown, and no reason to wait."""
        try:
            async with asyncio.timeout(NODE_READ_TIMEOUT_S):
                return await self._reader.nodes()
        except (SchedulerError, TimeoutError) as error:
            activity.logger.warning("the nodes are not known: %s", error)
            return None

    async def _reservations(self, record: JobRecord) -> Sequence[Reservation] | None:
        """Read the reservations for a job that asks for one; None where there is no answer."""
        if not record.reservation:
            return ()
        if self._reservation_reader is None:
            return None
        try:
            async with asyncio.timeout(NODE_READ_TIMEOUT_S):
                return await self._reservation_reader.reservations()
        except (SchedulerError, TimeoutError) as error:
            activity.logger.warning("the nodes of reservation %s are not known: %s", record.reservation, error)
            return None

    async def _samples(self, order: AttributeOrder, asked_at: datetime) -> MetricsAnswer:
        """Read what the store of metrics knows of the attempt's last minutes. It never keeps a verdict waiting."""
        until = min(asked_at, _over_at(order, asked_at))
        since = until - self._metrics.window
        if order.requeued:
            since = max(since, until - UNDATED_METRICS_WINDOW)
        elif order.record.started_at is not None:
            since = max(since, order.record.started_at)
        try:
            async with asyncio.timeout(METRICS_TIMEOUT_S):
                return await self._metrics.samples(order.nodes, since, until)
        except TimeoutError:
            return MetricsAnswer(state=MetricsState.UNREADABLE, reason=f"no answer within {METRICS_TIMEOUT_S:g} s")


def _of_others(suspicions: Sequence[Suspicion], order: AttributeOrder) -> tuple[Suspicion, ...]:
    """What other jobs say against the attempt's nodes."""
    program, nodes = program_of(str(order.job), order.record.array_job_id), set(order.nodes)
    return tuple(each for each in suspicions if each.node in nodes and each.job != program)


def _silence(order: AttributeOrder, now: datetime) -> timedelta:
    """How long nothing was finished before the attempt ended; of one that shows no progress nothing can be said."""
    over_at = _over_at(order, now)
    return max(timedelta(), over_at - (order.progress.last_at or over_at))


def _over_at(order: AttributeOrder, now: datetime) -> datetime:
    """When the attempt ended; now where it runs. After a requeue the job counts as submitted at that moment."""
    return order.record.submitted_at if order.requeued else order.record.ended_at or now


def _failed(nodes: Sequence[NodeRecord] | None, allocation: tuple[NodeName, ...]) -> tuple[NodeName, ...]:
    """The attempt's nodes that Slurm itself took out: down or not responding."""
    lost = {"DOWN", "NOT_RESPONDING", "FAIL", "FAILING"}
    return tuple(node.name for node in nodes or () if node.name in allocation and node.states & lost)
