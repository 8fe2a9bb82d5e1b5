"""The worker process: for each cluster one poller of the scheduler and the Temporal workers of its queues.

One process may serve everything, or several may share the work: nothing here is kept but what can be read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from activities.adopt import Adopter, Selection
from activities.arrays import ArrayDesk
from activities.assess import Assessor
from activities.assessment import Terms
from activities.audit import AuditActivities, AuditTrail
from activities.chains import ChainReader
from activities.discovery import Discovery
from activities.evidence import EvidenceKeeper
from activities.gauges import Gauges
from activities.governor import GovernorDesk, cluster_workflow_id
from activities.logs.protocol import LogSource
from activities.notify import Notifier
from activities.scheduler.protocol import Scheduler
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.resubmit import Resubmitter
from activities.scheduler.shared_reads import SharedReads
from activities.scheduler.site import AccountsReader
from activities.scheduler.successors import ChainActs
from activities.second_opinion import Counsel
from activities.snapshot import ClusterSnapshots
from activities.sources import SchedulerSight, SourceWatch
from activities.suspicions import ClusterSuspicions
from activities.telemetry import TraceExporter
from activities.watch import Watcher
from recovery.model import Mode
from recovery.redaction import mask_also
from recovery.signatures.catalogue import Catalogue
from workers.act_gate import gated
from workers.attribution_services import open_attribution_service
from workers.errors import OperatorError
from workers.log_sources import open_log_source
from workers.metric_sources import open_metrics
from workers.schedulers import open_scheduler
from workers.settings import ClusterSettings, Settings
from workers.site_signatures import site_catalogue
from workers.task_queues import act_worker, clusters_worker, opinion_worker, recovery_worker, watch_worker
from workflows.cluster import ClusterWatch
from workflows.cluster_state import ClusterStart
from workflows.options import CLUSTERS_QUEUE, WATCH_LEASE, recovery_queue
from workflows.visibility import ALL_KEYS

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Records:
    """Where what happened is put on record, for all clusters."""

    audit: AuditActivities
    exporter: TraceExporter
    gauges: Gauges


def search_attributes() -> list[tuple[str, str]]:
    """Return name and Temporal type of every search attribute that the workflows set."""
    kinds = {"keyword": "Keyword", "int": "Int", "keyword_list": "KeywordList"}
    return [(key.name, kinds[key.indexed_value_type.name.lower()]) for key in ALL_KEYS]


def selection_of(cluster: ClusterSettings) -> Selection:
    """Return which jobs of `cluster` are looked after, and under which terms."""
    terms = Terms.of(
        cluster.policy,
        mode=cluster.mode,
        acknowledged=cluster.acknowledge_scheduler_actions,
        act_partitions=cluster.act_partitions,
        second_opinion_s=cluster.attribution.slow_s if cluster.attribution else 0.0,
    )
    return Selection(cluster=cluster.name, environment=cluster.environment, partitions=cluster.partitions, terms=terms)


def require_clusters(settings: Settings) -> None:
    """Raise `OperatorError` where there is nothing to serve."""
    if not settings.clusters:
        raise OperatorError("no cluster is configured", "add one under `clusters:` in relight.yaml")


@asynccontextmanager
async def running_worker(client: Client, settings: Settings, audit_dsn: str) -> AsyncIterator[None]:
    """Serve all clusters of `settings` while the context is open.

    Raises `OperatorError` when there is nothing to serve, a signature can't be used, or Temporal lacks our search
    attributes.
    """
    require_clusters(settings)
    mask_also(settings.redaction.patterns)
    catalogue = await asyncio.to_thread(site_catalogue, settings.signatures)
    await _check_search_attributes(client)
    trail = AuditTrail(audit_dsn) if audit_dsn else None
    exporter = TraceExporter(settings.telemetry.otlp_endpoint)
    gauges = Gauges(settings.telemetry.otlp_endpoint)
    notifier = Notifier(settings.notify.webhook_url.get_secret_value())
    async with AsyncExitStack() as stack:
        if trail is not None:
            stack.push_async_callback(trail.close)
        stack.callback(exporter.close)
        stack.push_async_callback(notifier.close)
        stack.push_async_callback(asyncio.to_thread, gauges.close)
        await stack.enter_async_context(clusters_worker(client, [notifier.notify]))
        records = Records(AuditActivities(trail), exporter, gauges)
        for cluster in settings.clusters:
            await stack.enter_async_context(_serving(client, cluster, settings.state_dir, records, catalogue))
        yield


@asynccontextmanager
async def _serving(
    client: Client, cluster: ClusterSettings, state_dir: Path, records: Records, catalogue: Catalogue
) -> AsyncIterator[None]:
    """Serve one cluster: its poller, its jobs' workflows, their watches and their acts."""
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(open_scheduler(cluster))
        cluster, refused = await gated(cluster, scheduler)
        snapshots = ClusterSnapshots(cluster.name, scheduler, cluster.poll_interval_s)
        stack.callback(asyncio.create_task(snapshots.run(), name=f"snapshots of {cluster.name}").cancel)
        metrics = await stack.enter_async_context(open_metrics(cluster))
        logs = await stack.enter_async_context(open_log_source(cluster, scheduler))
        service = await stack.enter_async_context(open_attribution_service(cluster))
        reads = SharedReads(scheduler)
        assessor = Assessor(
            reads,
            logs,
            cluster.policy,
            selection_of(cluster).terms,
            metrics,
            service,
            ClusterSuspicions(client, cluster.name),
            reads,
            catalogue,
        )
        for worker in _cluster_workers(
            client, cluster, scheduler, snapshots, logs, assessor, state_dir, records, catalogue
        ):
            await stack.enter_async_context(worker)
        if service is not None:
            counsel = Counsel(service, assessor)
            await stack.enter_async_context(opinion_worker(client, cluster.name, [counsel.second_opinion]))
        await _ensure_cluster_watch(client, cluster, refused)
        seen = (SchedulerSight(snapshots), logs, metrics)
        records.gauges.watch_sources(cluster.name, seen)
        records.gauges.watch_lost_lines(cluster.name, lambda: logs.lost_lines)
        sources = SourceWatch(client, cluster.name, seen)
        stack.callback(asyncio.create_task(sources.run(), name=f"sources of {cluster.name}").cancel)
        log.info("serving", cluster=cluster.name, mode=cluster.effective_mode.value)
        yield


def _cluster_workers(
    client: Client,
    cluster: ClusterSettings,
    scheduler: Scheduler,
    snapshots: ClusterSnapshots,
    logs: LogSource,
    assessor: Assessor,
    state_dir: Path,
    records: Records,
    catalogue: Catalogue,
) -> Sequence[Worker]:
    selection = selection_of(cluster)
    reads = SharedReads(scheduler)
    watcher = Watcher(
        snapshots,
        reads,
        logs,
        catalogue.match,
        cluster.detection,
        lease_s=WATCH_LEASE.total_seconds(),
        accounts=scheduler if isinstance(scheduler, AccountsReader) else None,
    )
    records.gauges.watch_jobs(cluster.name, lambda: watcher.blind_jobs)
    discovery = Discovery(snapshots, Adopter(client, recovery_queue(cluster.name), selection), selection)
    keeper = EvidenceKeeper(scheduler, logs, cluster.evidence, state_dir / "evidence" / cluster.name)
    desk = GovernorDesk(client, cluster.name, cluster.governor)
    arrays, chains = ArrayDesk(client, cluster.name, snapshots), ChainReader(snapshots)

    def may_act_in(partition: str) -> bool:
        return selection.terms.mode_in(partition) is Mode.ACT

    acts = SchedulerActs(scheduler, reads=reads, may_act_in=may_act_in)
    resubmitter = Resubmitter(scheduler, may_act_in=may_act_in)
    chain_acts = ChainActs(scheduler, may_act_in=may_act_in)
    return (
        watch_worker(client, cluster.name, [watcher.watch_attempt, discovery.discover_jobs]),
        recovery_worker(
            client,
            cluster.name,
            [
                records.audit.record_audit,
                records.exporter.export_recovery_trace,
                assessor.attribute,
                assessor.decide,
                arrays.compare_task,
                chains.find_stranded,
                desk.ask_governor,
                keeper.keep_evidence,
            ],
        ),
        act_worker(client, cluster.name, [acts.carry_out, resubmitter.submit_anew, chain_acts.constrain_successors]),
    )


async def _ensure_cluster_watch(client: Client, cluster: ClusterSettings, refused: str) -> None:
    """Start the cluster's workflow unless it runs, and tell it whether mode act was refused."""
    handle = await client.start_workflow(
        ClusterWatch.run,
        ClusterStart(cluster=cluster.name),
        id=cluster_workflow_id(cluster.name),
        task_queue=CLUSTERS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"cluster {cluster.name}",
    )
    await handle.signal(ClusterWatch.refused, refused)


async def _check_search_attributes(client: Client) -> None:
    """An unregistered search attribute fails every workflow task for ever: better not to start."""
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest

    there = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = [(name, kind) for name, kind in search_attributes() if name not in there.custom_attributes]
    if missing:
        names = " ".join(f"--name {name} --type {kind}" for name, kind in missing)
        raise OperatorError(
            f"Temporal's namespace {client.namespace} lacks {len(missing)} search attributes",
            f"temporal operator search-attribute create --namespace {client.namespace} {names}",
        )
