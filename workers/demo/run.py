"""The demonstration from its start to its report."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from activities.logs.files import FileTail
from activities.scheduler.protocol import JobRecord, SchedulerError
from recovery.detection.markers import IterationFinished
from recovery.detection.progress import read_marker
from workers.cli.output import console
from workers.demo.board import Board, print_report
from workers.demo.outcome import DemoReport, JobView, check
from workers.demo.stage import CLUSTER, Stage, running_stage
from workers.simulator.scenario import demo_jobs
from workflows.job import JobRecovery
from workflows.state import RecoveryState

DEADLINE_S = 80.0
LOOK_EVERY_S = 0.5
LOG_TAIL_BYTES = 2_000


async def run_demo(directory: Path, *, keep: bool, quiet: bool) -> DemoReport:
    """Run the four jobs and return what came of them. `quiet`: print nothing."""
    out = console(stderr=quiet)
    out.quiet = quiet
    began = time.monotonic()
    out.print("starting Temporal, PostgreSQL, a simulated cluster of 8 nodes, and the worker ...")
    async with running_stage(directory) as stage:
        out.print(f"Temporal Web UI: {stage.ui_url}\nfiles: {stage.directory}\n")
        jobs = {job.name: await stage.cluster.submit(job) for job in demo_jobs(stage.directory)}
        with Board(out) as board:
            views = await _follow(stage, jobs, board, until=began + DEADLINE_S)
        report = DemoReport(checks=check(views), jobs=views, elapsed_s=time.monotonic() - began, ui_url=stage.ui_url)
        print_report(out, report)
        if keep:
            out.print(f"the servers stay until Ctrl-C: {stage.ui_url}")
            await asyncio.Event().wait()
    return report


async def _follow(stage: Stage, jobs: dict[str, str], board: Board, *, until: float) -> tuple[JobView, ...]:
    """Show the jobs until relight has closed them all, or the time is over."""
    while True:
        looked = [await _look(stage, name, job_id) for name, job_id in jobs.items()]
        views = tuple(view for view in looked if view is not None)
        board.show(views)
        all_closed = len(views) == len(jobs) and all(view.state.closed for view in views)
        if all_closed or time.monotonic() > until:
            return views
        await asyncio.sleep(LOOK_EVERY_S)


async def _look(stage: Stage, name: str, job_id: str) -> JobView | None:
    """Return the job as cluster and workflow show it; None while one of them has nothing to show yet."""
    record, state = await asyncio.gather(_record(stage, job_id), _state(stage.client, job_id))
    if record is None or state is None:
        return None
    return JobView(name=name, record=record, state=state, iteration=await _iteration(stage.logs, record))


async def _iteration(logs: FileTail, record: JobRecord) -> int | None:
    """Read the job's newest iteration from the end of its log."""
    end = await logs.read_range(await logs.end(record.stdout, back_bytes=LOG_TAIL_BYTES), LOG_TAIL_BYTES)
    markers = [read_marker(line.text) for line in end.lines]
    numbers = [marker.n for marker in markers if isinstance(marker, IterationFinished) and marker.n is not None]
    return numbers[-1] if numbers else None


async def _record(stage: Stage, job_id: str) -> JobRecord | None:
    try:
        return await stage.scheduler.job(job_id)
    except SchedulerError:
        return None


async def _state(client: Client, job_id: str) -> RecoveryState | None:
    handle = client.get_workflow_handle_for(JobRecovery.run, f"recovery/{CLUSTER}/{job_id}")
    try:
        return await handle.query(JobRecovery.state)
    except (RPCError, WorkflowQueryFailedError):
        return None
