"""What it costs to follow many jobs of many ranks in one store, as watches do, Temporal and the network left out.

Time is counted and not waited for: rounds of reading follow one another as fast as the machine has time for them, with
as many new lines as would have arrived between them, and the process's own CPU seconds are held against those rounds.
The reader's own repeated questions run by the clock, on a busy machine more of them than the rounds account for.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from activities.logs.attempt import AttemptLog
from activities.logs.stores.protocol import Entry, Nanoseconds, Pushed, Window
from activities.logs.stores.settings import VictoriaLogsSettings
from activities.logs.stores.source import StoreLogs
from activities.logs.victorialogs import VictoriaLogs
from activities.scheduler.protocol import JobRecord, JobState
from activities.watch import LOG_POLL_S
from benchmarks.figures import Figure
from benchmarks.processes import Usage
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.settings import DetectionSettings
from recovery.signatures.catalogue import packaged_catalogue

RANKS = 64
LINES_PER_S = 2_000
MIB = 1 << 20
CPU_TARGET, QUESTIONS_TARGET = 100.0, 120.0
_KEPT_S = 60


class CannedStore:
    """A `LogStore` that answers with lines of VictoriaLogs' form, which are read as if they came from there."""

    most_entries = 10_000

    def __init__(self, settings: VictoriaLogsSettings) -> None:
        self._reads = VictoriaLogs(settings, "")
        self._kept: deque[tuple[Nanoseconds, str, bytes]] = deque(maxlen=LINES_PER_S * _KEPT_S)
        self._pushed: dict[str, asyncio.Queue[list[bytes]]] = {}

    def arrive(self, lines: Sequence[tuple[Nanoseconds, str, bytes]]) -> None:
        """Take new lines: time, job id, and the line as the store would send it."""
        self._kept.extend(lines)
        by_queue: dict[asyncio.Queue[list[bytes]], list[bytes]] = {}
        for _, job_id, line in lines:
            if job_id in self._pushed:
                by_queue.setdefault(self._pushed[job_id], []).append(line)
        for queue, of_queue in by_queue.items():
            queue.put_nowait(of_queue)

    async def page(
        self, job_ids: Sequence[str], window: Window, limit: int, *, newest_first: bool = False
    ) -> list[Entry]:
        if newest_first:
            raise NotImplementedError
        wanted = frozenset(job_ids)
        found = [line for ns, job, line in self._kept if window.start_ns <= ns < window.end_ns and job in wanted]
        return [self._reads.entry(line) for line in found[:limit]]

    async def push(
        self,
        job_ids: Sequence[str],
        since_ns: Nanoseconds,  # noqa: ARG002 - nothing is kept from before
    ) -> AsyncGenerator[Pushed, None]:
        queue: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._pushed.update(dict.fromkeys(job_ids, queue))
        yield Pushed([])
        while True:
            yield Pushed([self._reads.entry(line) for line in await queue.get()])

    async def newest_ns(self, window: Window) -> Nanoseconds | None:  # noqa: ARG002 - lines never stop here
        return self._kept[-1][0] if self._kept else None

    async def label_names(self, window: Window) -> tuple[str, ...]:
        raise NotImplementedError

    async def close(self) -> None:
        await self._reads.close()


async def measure_crowd(jobs: int, seconds: float) -> list[Figure]:
    """Follow `jobs` jobs for as many rounds as `seconds` have."""
    settings = VictoriaLogsSettings(kind="victorialogs", url="http://127.0.0.1")
    store = CannedStore(settings)
    logs = StoreLogs(store, settings)
    watches = [_Watch(logs, str(1 + job)) for job in range(jobs)]
    heard: Counter[str] = Counter()
    rounds, per_round = round(seconds / LOG_POLL_S), round(LINES_PER_S * LOG_POLL_S)
    await _round(watches, heard)
    await asyncio.sleep(1)
    begun, asked, half = Usage.of(os.getpid()), logs.reader.questions, Usage.of(os.getpid())
    for number in range(rounds):
        store.arrive(_lines(number * per_round, per_round, jobs))
        await asyncio.sleep(0.01)
        await _round(watches, heard)
        if number == rounds // 2:
            half = Usage.of(os.getpid())
    await _round(watches, heard)
    ended = Usage.of(os.getpid())
    await logs.close()
    shipped = rounds * per_round
    minutes = (ended.at_s - begun.at_s) / 60
    cpu_percent = 100 * (ended.cpu_s - begun.cpu_s) / seconds
    rss = f"{half.rss_bytes / MIB:.0f} half-way"
    return [
        Figure(f"{jobs} jobs x {RANKS} ranks: CPU", cpu_percent, "% of one core", CPU_TARGET),
        Figure("... resident memory", ended.rss_bytes / MIB, "MiB", None, rss),
        Figure("... lines not heard", shipped - len(heard), "lines", 0, f"of {shipped}"),
        Figure("... lines heard twice", heard.total() - len(heard), "lines", 0),
        Figure("... questions to the store", (logs.reader.questions - asked) / minutes, "per min", QUESTIONS_TARGET),
    ]


def _lines(first: int, count: int, jobs: int) -> list[tuple[Nanoseconds, str, bytes]]:
    """Return lines of the jobs and their ranks in turn, printed now."""
    now_ns = time.time_ns()
    lines = []
    for number in range(first, first + count):
        turn, job = divmod(number, jobs)
        at_ns = now_ns + number - first
        stamp = f"{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ns % 1_000_000_000:09d}Z"
        fields = {
            "_time": stamp,
            "_msg": f"iteration {turn:8d}/ 1000000 | elapsed time per iteration (ms): 500.0 | line {number}",
            "_stream": f'{{app="slurm",host="node{job:04d}",slurm_job_id="{1 + job}"}}',
            "slurm_job_id": str(1 + job),
            "rank": str(turn % RANKS),
            "host": f"node{job:04d}",
        }
        lines.append((at_ns, str(1 + job), json.dumps(fields).encode()))
    return lines


async def _round(watches: Sequence[_Watch], heard: Counter[str]) -> None:
    for watch in watches:
        heard.update(await watch.look())


class _Watch:
    """What `activities.watch` does with one job's log at each look."""

    def __init__(self, logs: StoreLogs, job_id: str) -> None:
        now = datetime.now(UTC)
        self._log = AttemptLog(logs)
        self._log.belongs_to(JobRecord(job_id=job_id, state=JobState.RUNNING, submitted_at=now, started_at=now), now)
        self._monitor = AttemptMonitor(DetectionSettings(), packaged_catalogue().match)

    async def look(self) -> list[str]:
        heard = await self._log.read()
        for line in heard:
            self._monitor.feed(line.line.text, line.at, source=line.source, number=line.line.number)
        self._monitor.look(datetime.now(UTC) - self._log.unknown_for, log_fresh=self._log.caught_up)
        return [line.line.text.rpartition(" ")[2] for line in heard]
