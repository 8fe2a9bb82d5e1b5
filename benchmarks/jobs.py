"""What it costs to watch many healthy jobs at once, beside what an idle worker costs in the same run."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from activities.scheduler.simulated import SimulatedCluster, SimulatedScheduler
from benchmarks.crowd import STEP_S, count_followed, growing, submit_crowd
from benchmarks.figures import Figure, Report
from benchmarks.polling import until
from benchmarks.processes import Usage
from benchmarks.reading import parsing_s
from benchmarks.service import running_program, running_servers, running_worker
from tests.simulator.line import Line
from workers.settings import ClusterSettings

CPU_TARGET_PERCENT = 30.0
RSS_TARGET_MIB = 300.0
READS_TARGET_PER_INTERVAL = 1.05
"""One, and what a window's edges may add to it."""
SETTLE_S = 10.0
ADOPT_TIMEOUT_S = 120.0
WARM_UP_S = 20.0
MIB = 1 << 20


@dataclass(frozen=True)
class Window:
    """What was used up and asked within one stretch of time."""

    worker_cpu_percent: float
    worker_rss_bytes: int
    server_cpu_percent: float
    seconds: float
    asked: Counter[str]


class Observer:
    """Looks at the worker, the Temporal server and the questions to the scheduler."""

    def __init__(self, worker_pid: int, server_pid: int, asked: Counter[str]) -> None:
        self._worker_pid = worker_pid
        self._server_pid = server_pid
        self._asked = asked

    async def observe(self, seconds: float) -> Window:
        """Look for `seconds`."""
        worker, server, asked = Usage.of(self._worker_pid), Usage.of(self._server_pid), Counter(self._asked)
        await asyncio.sleep(seconds)
        worker_after, server_after = Usage.of(self._worker_pid), Usage.of(self._server_pid)
        return Window(
            worker_cpu_percent=worker_after.cpu_percent_since(worker),
            worker_rss_bytes=worker_after.rss_bytes,
            server_cpu_percent=server_after.cpu_percent_since(server),
            seconds=worker_after.at_s - worker.at_s,
            asked=self._asked - asked,
        )


async def measure(jobs: int, seconds: float, *, warm_up_s: float = WARM_UP_S) -> Report:
    """Watch nothing, then `jobs` jobs, for `seconds` each."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relight-jobs-")))
        servers = await stack.enter_async_context(running_servers(directory))
        socket, watched_socket = directory / "cluster.sock", directory / "proxy.sock"
        simulator = ("--state-dir", str(directory / "cluster"), "--socket", str(socket), "--nodes", str(jobs))
        await stack.enter_async_context(running_program(directory / "simulator.log", "workers.simulator", *simulator))
        cluster = SimulatedCluster(socket)
        await cluster.ready()
        line = Line(socket)
        await stack.enter_async_context(line.listening(watched_socket))
        scheduler = {"kind": "simulated", "socket": str(watched_socket)}
        settings = servers.write_settings(directory / "relight.yaml", scheduler)
        worker_pid = await stack.enter_async_context(running_worker(directory, settings, servers.client))
        observer = Observer(worker_pid, servers.temporal.record.pid, line.asked)
        await asyncio.sleep(min(SETTLE_S, warm_up_s))
        idle = await observer.observe(seconds)
        logs = await submit_crowd(cluster, SimulatedScheduler(socket), jobs)
        await stack.enter_async_context(growing(logs))
        await until(lambda: _guards(servers.client, jobs), timeout_s=ADOPT_TIMEOUT_S)
        await asyncio.sleep(warm_up_s)
        busy = await observer.observe(seconds)
        followed = await count_followed(servers.client, jobs)
    what = f"{jobs} healthy jobs on the simulated cluster, an iteration line every {STEP_S:g} s each; {seconds:g} s"
    return Report("jobs", what, tuple(_figures(jobs, followed, idle, busy)))


async def _guards(client: Client, jobs: int) -> bool:
    return (await client.count_workflows("WorkflowType = 'JobRecovery'")).count >= jobs


def _figures(jobs: int, followed: int, idle: Window, busy: Window) -> list[Figure]:
    interval_s = float(ClusterSettings.model_fields["poll_interval_s"].default)
    intervals = busy.seconds / interval_s
    others = busy.asked.total() - busy.asked["jobs"]
    beside_idle = "{:.3g} idle, {:.1f} x".format
    return [
        Figure(
            "worker's CPU",
            busy.worker_cpu_percent,
            "% of one core",
            CPU_TARGET_PERCENT,
            beside_idle(idle.worker_cpu_percent, busy.worker_cpu_percent / max(idle.worker_cpu_percent, 0.01)),
        ),
        Figure(
            "worker's resident memory",
            busy.worker_rss_bytes / MIB,
            "MiB",
            RSS_TARGET_MIB,
            beside_idle(idle.worker_rss_bytes / MIB, busy.worker_rss_bytes / idle.worker_rss_bytes),
        ),
        Figure(
            "bulk reads of the scheduler",
            busy.asked["jobs"] / intervals,
            f"per {interval_s:g} s interval",
            READS_TARGET_PER_INTERVAL,
            f"{jobs} would be one for each job",
        ),
        Figure("other questions to the scheduler", others / intervals, f"per {interval_s:g} s interval", 0.0),
        Figure("jobs whose last iteration is known", followed, f"of {jobs}"),
        Figure(
            f"parsing squeue --json of {jobs} running jobs",
            100 * parsing_s(jobs) / interval_s,
            "% of one core",
            None,
            "what a real Slurm adds to the worker's CPU, as 24.11 prints it",
        ),
        Figure(
            "Temporal server's CPU",
            busy.server_cpu_percent,
            "% of one core",
            None,
            beside_idle(idle.server_cpu_percent, busy.server_cpu_percent / max(idle.server_cpu_percent, 0.01)),
        ),
    ]
