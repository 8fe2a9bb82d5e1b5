"""Many jobs that fail within one second: when each is advised on, what is acted on, what it costs, who is told."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from activities.scheduler.simulated import SimulatedCluster, SimulatedScheduler
from benchmarks.crowd import Fuse
from benchmarks.figures import Figure, Report, percentile
from benchmarks.polling import until, until_some
from benchmarks.service import CLUSTER, running_program, running_servers, running_worker
from recovery.model import MilestoneKind
from tests.governor.webhook import Webhook
from tests.simulator.line import Line
from workers.settings import ClusterSettings
from workflows.job import JobRecovery
from workflows.state import RecoveryState

ADVISED_TARGET_S = 15.0
CALLS_TARGET = 5.0
ADOPT_TIMEOUT_S = 120.0
STORM_TIMEOUT_S = 240.0
SETTLE_S = 5.0


async def measure(jobs: int, told_s: float) -> Report:
    """Let `jobs` jobs of one node fail together on a cluster of as many nodes, under the default limits; count the
    messages to people for `told_s` at most."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relight-storm-")))
        servers = await stack.enter_async_context(running_servers(directory))
        webhook = await stack.enter_async_context(Webhook().listening())
        socket, watched_socket = directory / "cluster.sock", directory / "proxy.sock"
        simulator = ("--state-dir", str(directory / "cluster"), "--socket", str(socket), "--nodes", str(jobs))
        await stack.enter_async_context(running_program(directory / "simulator.log", "workers.simulator", *simulator))
        cluster, scheduler = SimulatedCluster(socket), SimulatedScheduler(socket)
        await cluster.ready()
        line = Line(socket)
        await stack.enter_async_context(line.listening(watched_socket))
        settings = servers.write_settings(
            directory / "relight.yaml",
            {"kind": "simulated", "socket": str(watched_socket)},
            webhook_url=webhook.address,
        )
        await stack.enter_async_context(running_worker(directory, settings, servers.client))
        fuse = Fuse(directory / "fuse")
        await fuse.submit(cluster, scheduler, jobs)
        await until(lambda: _watched(servers.client, jobs), timeout_s=ADOPT_TIMEOUT_S)
        await asyncio.sleep(SETTLE_S)
        before = Counter(line.asked)
        lit_at = datetime.now(UTC)
        fuse.light()
        await until(lambda: _settled(servers.client, jobs), every_s=1.0, timeout_s=STORM_TIMEOUT_S)
        asked, lasted_s = line.asked - before, (datetime.now(UTC) - lit_at).total_seconds()
        states = [await _state_of(servers.client, number) for number in range(1, jobs + 1)]
        with suppress(TimeoutError):
            await until(lambda: _told(webhook, jobs), timeout_s=told_s)
    what = f"{jobs} jobs of one node fail together on the simulated cluster of {jobs} nodes, under the default limits"
    return Report("storm", what, tuple(_figures(states, lit_at, lasted_s, asked, webhook)))


async def _watched(client: Client, jobs: int) -> bool:
    return (await client.count_workflows("WorkflowType = 'JobRecovery'")).count >= jobs


async def _settled(client: Client, jobs: int) -> bool:
    """Whether each job was acted on or is kept back. Lists are asked: queries would disturb what is measured."""
    settled = "WorkflowType = 'JobRecovery' AND (Restarts > 0 OR RecoveryPhase = 'kept_back')"
    return (await client.count_workflows(settled)).count >= jobs


async def _state_of(client: Client, number: int) -> RecoveryState:
    handle = client.get_workflow_handle_for(JobRecovery.run, f"recovery/{CLUSTER}/{number}")

    async def look() -> RecoveryState | None:
        with suppress(RPCError):
            return await handle.query(JobRecovery.state)
        return None

    return await until_some(look, timeout_s=STORM_TIMEOUT_S)


async def _told(webhook: Webhook, jobs: int) -> bool:
    return sum(int(body["failures"]) for body in webhook.bodies) >= jobs


def _figures(
    states: list[RecoveryState], lit_at: datetime, lasted_s: float, asked: Counter[str], webhook: Webhook
) -> list[Figure]:
    advised = [(_reached(state, MilestoneKind.ADVISED) - lit_at).total_seconds() for state in states]
    restarted = [state for state in states if state.attempt == 1]
    acted = [(_reached(state, MilestoneKind.ACTED) - lit_at).total_seconds() for state in restarted]
    limit = ClusterSettings.model_fields["governor"].default.restarts
    polls = lasted_s / float(ClusterSettings.model_fields["poll_interval_s"].default)
    calls = asked.total() - min(asked["jobs"], polls)
    of_acts = calls - asked["nodes"]
    among = f"{len(states)} jobs, since they were let fail"
    by_verb = "less the poll of each interval; " + ", ".join(f"{verb} {count}" for verb, count in sorted(asked.items()))
    return [
        Figure("last job advised on", max(advised), "s", ADVISED_TARGET_S, among),
        Figure("advised on, median", statistics.median(advised), "s"),
        Figure("advised on, p95", percentile(advised, 95), "s"),
        Figure("restarts", len(restarted), "jobs", float(limit), "the others are kept back for the next window"),
        Figure("last of them acted on", max(acted), "s", None, "verified by a fresh read"),
        Figure(
            "scheduler calls per restart",
            of_acts / len(restarted),
            "calls",
            CALLS_TARGET,
            by_verb,
        ),
        Figure("scheduler calls per failed job", calls / len(states), "calls", None, "reads of the nodes included"),
        Figure("messages to people", len(webhook.bodies), "in the first minutes"),
    ]


def _reached(state: RecoveryState, kind: MilestoneKind) -> datetime:
    return next(milestone.at for milestone in state.milestones if milestone.kind is kind)
