"""One bulk read of the scheduler per interval, shared by all watches of a worker process.

slurmctld is asked once per interval, not once per job, and less often when it answers slowly. While it gives no answer
the last reading stands, with its age: unknown is not failed.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from activities.scheduler.protocol import ClusterReading, JobRecord, Scheduler, SchedulerError
from recovery.model import JobId

log = structlog.get_logger(__name__)

FORGIVEN_S = 1.0
"""So long an answer may take without consequences: most of that is the command's own start, and reading it."""
PAUSE_FOR_EACH_S = 9.0
"""For each second beyond, twice running, so long a pause: slurmctld is busy with relight for at most a tenth of the
time."""
LONGEST_PAUSE_S = 120.0
LONGEST_PAUSE_IN_SILENCE_S = 10.0
"""After a read without an answer: whoever waits for the scheduler's return should not wait for us."""


def pause_after(took_s: float, interval_s: float, *, before_s: float, answered: bool) -> float:
    """Return how long to leave the scheduler alone after a read that took `took_s` and the one before it `before_s`:
    one slow answer alone is no reason to look away."""
    slow_s = max(0.0, min(took_s, before_s) - FORGIVEN_S)
    longest_s = LONGEST_PAUSE_S if answered else LONGEST_PAUSE_IN_SILENCE_S
    return max(0.0, interval_s - took_s, min(longest_s, PAUSE_FOR_EACH_S * slow_s))


class ClusterSnapshots:
    """Reads a cluster for as long as `run` runs, and wakes whoever waits for the next reading."""

    def __init__(self, cluster: str, scheduler: Scheduler, interval_s: float) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._interval_s = interval_s
        self._reading: ClusterReading | None = None
        self._by_id: dict[JobId, JobRecord] = {}
        self._arrived = asyncio.Condition()
        self._silent_since: datetime | None = None
        self._silent_because = ""
        self._slow = False

    @property
    def interval_s(self) -> float:
        """Seconds between two reads, unless they are slow."""
        return self._interval_s

    @property
    def reading(self) -> ClusterReading | None:
        """The newest reading; None before the first."""
        return self._reading

    @property
    def silent_since(self) -> datetime | None:
        """Since when the scheduler gives no answer; None while it does."""
        return self._silent_since

    @property
    def silent_because(self) -> str:
        """What the newest read without an answer said; empty while there are answers."""
        return self._silent_because

    def find(self, job_id: JobId) -> JobRecord | None:
        """Return the job in the newest reading; None when it is not listed there."""
        return self._by_id.get(job_id)

    async def newer_than(self, read_at: datetime | None) -> ClusterReading:
        """Wait for a reading after `read_at` and return it."""
        async with self._arrived:
            await self._arrived.wait_for(
                lambda: self._reading is not None and (read_at is None or self._reading.read_at > read_at)
            )
        if self._reading is None:
            raise RuntimeError("a reading was announced and is not there")
        return self._reading

    async def run(self) -> None:
        """Read once per interval until cancelled."""
        loop = asyncio.get_running_loop()
        before_s = 0.0
        while True:
            began_s = loop.time()
            answered = await self._read()
            took_s = loop.time() - began_s
            pause_s = pause_after(took_s, self._interval_s, before_s=before_s, answered=answered)
            before_s = took_s
            if answered:
                self._tell_of_pace(took_s, pause_s)
            await asyncio.sleep(pause_s)

    def _tell_of_pace(self, took_s: float, pause_s: float) -> None:
        slow = took_s + pause_s > 2 * self._interval_s
        if slow and not self._slow:
            told = {"took_s": round(took_s, 1), "pause_s": round(pause_s, 1)}
            log.warning("the scheduler answers slowly and is asked less often", cluster=self._cluster, **told)
        elif self._slow and not slow:
            log.info("the scheduler is asked as often as it should be again", cluster=self._cluster)
        self._slow = slow

    async def _read(self) -> bool:
        """Read once; False without an answer."""
        try:
            reading = await self._scheduler.jobs()
        except SchedulerError as error:
            # A read that is refused tells as little as one without an answer; it must not end the reading.
            self._silent_because = str(error)
            if self._silent_since is None:
                self._silent_since = datetime.now(UTC)
                log.warning("the scheduler gives no answer", cluster=self._cluster, error=str(error))
            return False
        if self._silent_since is not None:
            log.info("the scheduler answers again", cluster=self._cluster, silent_since=self._silent_since.isoformat())
        async with self._arrived:
            self._silent_since, self._silent_because = None, ""
            self._reading = reading
            self._by_id = {job.job_id: job for job in reading.jobs}
            self._arrived.notify_all()
        return True
