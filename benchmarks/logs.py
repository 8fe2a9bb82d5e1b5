"""How long a line takes from where it is written to the watch's report, for each kind of log source, and what a crowd
of jobs in a store costs."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from activities.findings import Faulted
from activities.logs.stores.source import StoreLogs
from benchmarks.figures import Figure, Report, spread
from benchmarks.log_crowd import LINES_PER_S, measure_crowd
from recovery.detection.settings import DetectionSettings
from tests.stores.servers import NoStore, RunningStore, running_store, shipping
from tests.watch.scripted import JOB_ID, XID, JobUnderWatch, Watch, iteration

POLL_S = 5.0
FILES_TARGET_S, TAIL_TARGET_S, POLLED_TARGET_S = 1.5, 3.0, POLL_S + 2

Write = Callable[[str], Awaitable[None]]


async def measure(samples: int, jobs: int, seconds: float) -> Report:
    """Time `samples` fatal lines through each source; then follow `jobs` jobs for `seconds`."""
    what = (
        f"{samples} fatal lines through each source; {jobs} jobs, {LINES_PER_S} lines/s in all, {seconds:g} s of them"
    )
    figures = spread("files: line to report", await _through_files(samples), median_target=FILES_TARGET_S)
    try:
        for kind, called in (("loki", "Loki's API"), ("victorialogs", "VictoriaLogs")):
            with running_store(kind) as store:
                for tail, how, target in ((True, "tail", TAIL_TARGET_S), (False, "polled", POLLED_TARGET_S)):
                    took = await _through(store, samples, tail=tail)
                    figures += spread(f"{called}, {how}: line to report", took, median_target=target)
    except NoStore as missing:
        figures.append(Figure(f"left out: {missing}", 0, ""))
    figures += await measure_crowd(jobs, seconds)
    return Report("logs", what, tuple(figures))


async def _through_files(samples: int) -> list[float]:
    async with _job() as job:

        async def write(line: str) -> None:
            job.writes(line)

        return [await _time_one(job, write) for _ in range(samples)]


async def _through(store: RunningStore, samples: int, *, tail: bool) -> list[float]:
    async with AsyncExitStack() as stack:
        job = await stack.enter_async_context(_job())
        shipper = await stack.enter_async_context(shipping(store))
        logs = StoreLogs(*store.client(tail=tail, poll_interval_s=POLL_S))
        stack.push_async_callback(logs.close)
        await job.logs.close()
        job.logs = logs  # type: ignore[assignment]

        async def write(line: str) -> None:
            await shipper.ship(JOB_ID, [line], host="node01", rank="0")

        return [await _time_one(job, write) for _ in range(samples)]


@asynccontextmanager
async def _job() -> AsyncIterator[JobUnderWatch]:
    with tempfile.TemporaryDirectory(prefix="relight-logs-") as directory:
        async with JobUnderWatch(Path(directory)).open() as job:
            yield job


async def _time_one(job: JobUnderWatch, write: Write) -> float:
    """Write a fatal line at some moment of a watch; return the seconds until the watch reports it."""
    job.log.write_text("")
    job.shows(started_at=datetime.now(UTC))
    await job.seen_by_the_poller()
    watch = Watch(job, job.order(), settings=DetectionSettings())
    await write(iteration(1))
    await asyncio.sleep(random.uniform(2.0, 2.0 + POLL_S / 2))
    began_s = time.perf_counter()
    await write(XID)
    finding = await watch.finding(timeout_s=60)
    took_s = time.perf_counter() - began_s
    if not isinstance(finding, Faulted):
        raise TypeError(f"the watch reported {finding.kind} in the place of a fault")
    await asyncio.sleep(1.5)  # the next attempt begins behind this one's lines, clocks' tolerance included
    return took_s
