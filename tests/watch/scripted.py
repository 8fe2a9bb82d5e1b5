"""A cluster whose answers a test sets, the job's real log files, and a watch over both as a worker would run it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from temporalio.testing import ActivityEnvironment

from activities.attempt_watch import WatchMemory
from activities.findings import Finding, WatchOrder
from activities.logs.files import FileTail
from activities.logs.turns import GATHER_S
from activities.scheduler.protocol import (
    ClusterReading,
    JobRecord,
    JobState,
    JobUnknown,
    NodeRecord,
    SchedulerUnavailable,
)
from activities.scheduler.site import AccountsReader
from activities.snapshot import ClusterSnapshots
from activities.watch import Watcher
from recovery.detection.settings import DetectionSettings
from recovery.model import JobKey
from recovery.optin import OptIn
from recovery.signatures.catalogue import load_catalogue

JOB_ID = "4711"
CLUSTER = "c1"
SUBMITTED_AT = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
NODES = ("node01", "node02")
XID = "[  812.4] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
INTERVAL_S = 0.05
PATIENT = 30.0
QUICK = DetectionSettings(fault_grace_s=0.3, fault_grace_cap_s=0.3, startup_fault_grace_s=0.3)


def submitted_at(attempt: int) -> datetime:
    """Slurm moves the submit time at each requeue."""
    return SUBMITTED_AT + timedelta(hours=attempt)


def iteration(n: int, total: int = 1_000) -> str:
    return (
        f" [2026-03-01 08:00:00] iteration {n:8d}/{total:8d} | consumed samples: {n * 256:12d} "
        f"| elapsed time per iteration (ms): 20.0 | lm loss: 2.345678E+00 |"
    )


def saved(n: int) -> str:
    return f"  successfully saved checkpoint from iteration {n:7d} to /checkpoints"


def loaded(n: int) -> str:
    return f"  successfully loaded checkpoint from /checkpoints [ t 0, p 0 ] at iteration {n}"


class ScriptedScheduler:
    """Answers what the test has set. It refuses to act: a watch only reads."""

    def __init__(self) -> None:
        self.listed: dict[str, JobRecord] = {}
        self.unlisted: dict[str, JobRecord] = {}
        """Jobs that a bulk reading leaves out and that are known when asked for by name."""
        self.node_records: tuple[NodeRecord, ...] = ()
        self.silent = False
        self.asked_for: list[str] = []

    async def jobs(self) -> ClusterReading:
        self._answer()
        return ClusterReading(read_at=datetime.now(UTC), jobs=tuple(self.listed.values()))

    async def job(self, job_id: str) -> JobRecord:
        self.asked_for.append(job_id)
        self._answer()
        found = self.unlisted.get(job_id) or self.listed.get(job_id)
        if found is None:
            raise JobUnknown(f"Invalid job id specified: {job_id}")
        return found

    async def nodes(self) -> tuple[NodeRecord, ...]:
        self._answer()
        return self.node_records

    async def requeue_hold(self, job_id: str) -> NoReturn:
        raise AssertionError("a watch never acts")

    requeue = constrain = release = start_now = allow_requeue = cancel = requeue_hold

    def _answer(self) -> None:
        if self.silent:
            raise SchedulerUnavailable("Socket timed out on send/recv operation")


class JobUnderWatch:
    """One job of a scripted cluster, with its output files."""

    def __init__(self, directory: Path) -> None:
        self.scheduler = ScriptedScheduler()
        self.snapshots = ClusterSnapshots(CLUSTER, self.scheduler, INTERVAL_S)  # type: ignore[arg-type]
        self.logs = FileTail()
        self.log = directory / "slurm-4711.out"
        self.log.write_text("")
        self.record = JobRecord(
            job_id=JOB_ID,
            name="pretrain",
            partition="gpu",
            state=JobState.RUNNING,
            submitted_at=submitted_at(0),
            started_at=submitted_at(0),
            nodes=NODES,
            node_count=len(NODES),
            stdout=str(self.log),
            stderr=str(self.log),
        )
        self.shows()

    def shows(self, state: JobState = JobState.RUNNING, attempt: int = 0, **facts: Any) -> JobRecord:
        """Let the scheduler show the job like this from now on."""
        changes = {"state": state, "restart_count": attempt, "submitted_at": submitted_at(attempt), **facts}
        self.record = JobRecord.model_validate({**self.record.model_dump(), "flags": (), **changes})
        self.scheduler.listed[JOB_ID] = self.record
        return self.record

    def writes(self, *lines: str) -> None:
        """Let the job print lines."""
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    async def trains(self, start: int, end: int, *, every_s: float = 0.08) -> None:
        """Let the job print the iterations from `start` to `end`, one after the other."""
        for n in range(start, end + 1):
            self.writes(iteration(n))
            await asyncio.sleep(every_s)

    def order(self, attempt: int = 0, **facts: Any) -> WatchOrder:
        return WatchOrder(
            **{
                "job": JobKey(cluster=CLUSTER, job_id=JOB_ID, submitted_at=submitted_at(0)),
                "optin": OptIn(),
                "attempt": attempt,
                "submitted_at": submitted_at(attempt),
                **facts,
            }
        )

    def order_after(self, order: WatchOrder, finding: Finding, **facts: Any) -> WatchOrder:
        """The order for watching on after a report, as the workflow gives it."""
        kept = {"monitor": finding.monitor, "began": finding.began, "logs": finding.logs}
        return order.model_copy(update={**kept, **facts})

    def order_of_next_attempt(self, finding: Finding, attempt: int, **facts: Any) -> WatchOrder:
        """The order for the attempt after the one that ended with `finding`, as the workflow gives it."""
        return self.order(attempt, began=finding.logs, logs=finding.logs, **facts)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[JobUnderWatch]:
        poller = asyncio.create_task(self.snapshots.run())
        await self.snapshots.newer_than(None)
        yield self
        poller.cancel()
        await asyncio.sleep(GATHER_S * 2)  # a cancelled watch leaves its last reading behind
        await self.logs.close()

    async def seen_by_the_poller(self) -> None:
        """Wait until what the scheduler shows now has been read."""
        await self.snapshots.newer_than(datetime.now(UTC))
        await self.snapshots.newer_than(datetime.now(UTC))


class Watch:
    """A watch activity under way."""

    def __init__(
        self,
        job: JobUnderWatch,
        order: WatchOrder,
        *,
        settings: DetectionSettings = QUICK,
        lease_s: float = PATIENT,
        blind_after_s: float = 60.0,
        heartbeat: Any = None,
        accounts: AccountsReader | None = None,
    ) -> None:
        watcher = Watcher(
            job.snapshots,
            job.scheduler,
            job.logs,
            load_catalogue().match,
            settings,
            lease_s=lease_s,
            blind_after_s=blind_after_s,
            accounts=accounts,
        )
        self.heartbeats: list[Any] = []
        self.environment = ActivityEnvironment()
        self.environment.on_heartbeat = self.heartbeats.append
        if heartbeat is not None:
            self.environment.info = dataclasses.replace(self.environment.info, heartbeat_details=[heartbeat])
        self.task: asyncio.Task[Finding] = asyncio.create_task(self.environment.run(watcher.watch_attempt, order))

    async def finding(self, timeout_s: float = 10.0) -> Finding:
        """Wait for the report that ends the watch."""
        async with asyncio.timeout(timeout_s):
            return await self.task

    async def silent_for(self, seconds: float) -> bool:
        """Whether the watch reports nothing for so long."""
        done, _ = await asyncio.wait({self.task}, timeout=seconds)
        return not done

    async def heard(self, holds: Callable[[WatchMemory], bool], timeout_s: float = 5.0) -> WatchMemory:
        """Wait for a heartbeat of which `holds` is true."""
        async with asyncio.timeout(timeout_s):
            while not self.heartbeats or not holds(self.memory):
                await asyncio.sleep(0.02)
        return self.memory

    @property
    def memory(self) -> WatchMemory:
        """What the last heartbeat kept, after the way through Temporal's payload."""
        return WatchMemory.model_validate(json.loads(json.dumps(self.heartbeats[-1])))

    async def stop(self) -> None:
        """End the watch from outside, as a test does with one that reports nothing."""
        self.environment.cancel()
        await asyncio.wait({self.task}, timeout=5)
