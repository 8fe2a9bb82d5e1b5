"""One attempt under watch: the scheduler's snapshot, the log's new lines, and the monitor over both."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities.chains import stranded_by
from activities.detected import as_reported
from activities.findings import (
    CannotStart,
    DependentsStranded,
    Ended,
    Faulted,
    Finding,
    Gone,
    LinesLost,
    Reached,
    Requeued,
    SightChanged,
    WatchOrder,
)
from activities.kept_waiting import KeptWaiting
from activities.logs.attempt import AttemptLog, HeardLine
from activities.logs.protocol import LogCursor, LogSource, SourceState
from activities.scheduler.protocol import (
    ClusterReading,
    JobFlag,
    JobReader,
    JobRecord,
    JobState,
    JobUnknown,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.site import AccountsReader
from activities.snapshot import ClusterSnapshots
from activities.true_end import as_record, in_words, true_end
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.state import MonitorState
from recovery.model import Evidence, Milestone, MilestoneKind, NodeName, Value
from recovery.redaction import redact

BLIND_AFTER_S = 60.0
"""How long the log or the scheduler must be out of sight before that is reported."""
GAP_AGAIN_S = 300.0
"""How long a watch goes on before it reports that still more lines were lost."""


class WatchMemory(Value):
    """What a heartbeat keeps: where the next worker reads on."""

    monitor: MonitorState = MonitorState()
    began: tuple[LogCursor, ...] = ()
    logs: tuple[LogCursor, ...] = ()
    nodes: tuple[NodeName, ...] = ()
    heard_at: datetime | None = None
    """The last time that the log could be read while the attempt ran."""


class AttemptWatch:
    """One attempt under watch, between two reports."""

    def __init__(
        self,
        order: WatchOrder,
        memory: WatchMemory,
        monitor: AttemptMonitor,
        logs: LogSource,
        scheduler: JobReader,
        snapshots: ClusterSnapshots,
        *,
        blind_after_s: float = BLIND_AFTER_S,
        accounts: AccountsReader | None = None,
    ) -> None:
        self._accounts = accounts
        self._order = order
        self._monitor = monitor
        self._log = AttemptLog(logs, began=memory.began, cursors=memory.logs, heard_at=memory.heard_at)
        self._scheduler = scheduler
        self._snapshots = snapshots
        self._blind_after_s = blind_after_s
        self._nodes = memory.nodes
        self._record: JobRecord | None = None
        self._read_at: datetime | None = None
        self._began_at = datetime.now(UTC)
        self._saw_dependents = order.answered_at is None
        self._waiting = KeptWaiting(order.kept_off)

    @property
    def running(self) -> bool:
        """Whether the attempt runs, as far as the newest reading says."""
        return self._record is not None and self._record.state is JobState.RUNNING

    def memory(self) -> WatchMemory:
        """Return what the next worker needs."""
        return WatchMemory(
            monitor=self._monitor.state,
            began=self._log.began,
            logs=self._log.cursors,
            nodes=self._nodes,
            heard_at=self._log.heard_at,
        )

    def report(self, evidence: tuple[Evidence, ...] = ()) -> dict[str, Any]:
        """Return what every report carries."""
        return {
            "at": datetime.now(UTC),
            "progress": self._monitor.progress,
            "monitor": self._monitor.state,
            "began": self._log.began,
            "logs": self._log.cursors,
            "read_out": self._log.read_out,
            "evidence": evidence,
            "lost_lines": self._log.lost_lines,
        }

    async def look(self) -> Finding | None:
        """Look at the scheduler, then at the log; the scheduler's word comes first."""
        if self._order.report_start and self._record is None:
            await self._leave_out_earlier_output()
        if (finding := await self._look_at_scheduler()) is not None:
            return finding
        if self._record is None or not self.running:
            return self._look_at_wait() or self._look_at_sight()
        for heard in await self._log.read():
            self._feed(heard)
        if (finding := self._look_at_log(self._record)) is not None:
            return await self._unless_it_has_ended(finding)
        return self._look_at_start(self._record) or self._look_at_sight() or self._look_at_gaps()

    async def _unless_it_has_ended(self, finding: Finding) -> Finding:
        """Return `finding`, or the end of the attempt where a fatal line was its last and no reading tells of that yet:
        both would be looked into, one after the other, when one answer will do."""
        if not isinstance(finding, Faulted) or finding.certain:
            return finding
        try:
            record = await self._scheduler.job(self._order.job.job_id)
        except SchedulerError as error:
            activity.logger.info("whether the attempt goes on is not known: %s", error)
            return finding
        ended = record.state.ended and not _is_another_job(record, self._order)
        return (await self._judge(record) if ended else None) or finding

    async def _leave_out_earlier_output(self) -> None:
        """After a requeue, find out where this attempt's output begins in files that are appended to."""
        ends = await self._log.ends()
        try:
            record = await self._scheduler.job(self._order.job.job_id)
        except SchedulerError as error:
            activity.logger.info("where the attempt's output begins is not known: %s", error)
            return
        waits = record.state is JobState.PENDING and JobFlag.COMPLETING not in record.flags
        if waits and record.restart_count == self._order.attempt:
            self._log.begin_at(ends)

    async def _look_at_scheduler(self) -> Finding | None:
        reading = self._snapshots.reading
        if reading is None or reading.read_at == self._read_at:
            return None
        self._read_at = reading.read_at
        record = self._snapshots.find(self._order.job.job_id)
        known = record is not None and not _is_another_job(record, self._order)
        finding = await self._judge(record) if record and known else await self._ask_again()
        return finding or self._look_at_dependents(reading)

    def _look_at_dependents(self, reading: ClusterReading) -> Finding | None:
        """Look once who waits in vain since the last failure was answered."""
        order = self._order
        if self._saw_dependents or order.answered_at is None or reading.read_at <= order.answered_at:
            return None
        self._saw_dependents = True
        stranded = stranded_by(order.job.job_id, reading.jobs, for_good=False)
        return None if stranded == order.stranded else DependentsStranded(**self.report(), stranded=stranded)

    async def _ask_again(self) -> Finding | None:
        """A bulk reading may lack the job or be older than the attempt: the job is asked for by itself before it counts
        as gone. Without an answer nothing is concluded."""
        try:
            record = await self._scheduler.job(self._order.job.job_id)
        except JobUnknown:
            return await self._gone("the scheduler does not know the job any more")
        except SchedulerUnavailable:
            return None
        if _is_another_job(record, self._order):
            return await self._gone("the job id now belongs to another job")
        return await self._judge(record)

    async def _gone(self, detail: str) -> Finding:
        """The scheduler has forgotten the job; accounting may know how it ended."""
        end = await true_end(self._accounts, self._order)
        if end is None:
            return Gone(**self.report(), detail=detail)
        if self._order.ended:
            return Gone(**self.report(), detail=f"{detail}; {in_words(end)}")
        if self._record is not None:
            await self._drain_log()
        return Ended(**self.report(self._fatal_lines()), record=as_record(end, self._record, self._order))

    async def _judge(self, record: JobRecord) -> Finding | None:
        order = self._order
        if record.restart_count > order.attempt:
            if JobFlag.COMPLETING in record.flags or record.state is JobState.UNKNOWN:
                return None
            if self.running or self._has_yet_to_start(record):
                await self._drain_log()
            return Requeued(**self.report(self._fatal_lines()), record=record, nodes=self._nodes)
        self._log.belongs_to(record, self._read_at)
        self._nodes = record.nodes or self._nodes
        was_ended = self._order.ended
        self._record = record
        if not record.state.ended or was_ended:
            return None
        await self._drain_log()
        return Ended(**self.report(self._fatal_lines()), record=record)

    def _fatal_lines(self) -> tuple[Evidence, ...]:
        """The fatal lines that the attempt did not get over: its end may be seen before they are."""
        fault = self._monitor.state.fault
        return () if fault is None else (fault.line, *fault.later)

    def _has_yet_to_start(self, record: JobRecord) -> bool:
        """Whether what stands in the log is still all of the watched attempt, and not of the next."""
        return record.state is JobState.PENDING and record.restart_count == self._order.attempt + 1

    async def _drain_log(self) -> None:
        async for heard in self._log.drain():
            self._feed(heard)

    def _feed(self, heard: HeardLine) -> None:
        self._monitor.feed(heard.line.text, heard.at, source=heard.source, number=heard.line.number)

    def _look_at_log(self, record: JobRecord) -> Finding | None:
        known_until = datetime.now(UTC) - self._log.unknown_for
        found = self._monitor.look(known_until, log_fresh=self._log.caught_up) or self._monitor.slowdown()
        if found is None:
            return None
        self._monitor.take(found)
        return as_reported(found, record, self.report)

    def _look_at_start(self, record: JobRecord) -> Finding | None:
        if not self._order.report_start:
            return None
        attempt, progress = self._order.attempt, self._monitor.progress
        if not self._order.allocated:
            at, detail = record.started_at or datetime.now(UTC), ", ".join(record.nodes)[:200]
            reached = Milestone(kind=MilestoneKind.ALLOCATED, attempt=attempt, at=at, detail=detail)
            return Reached(**self.report(), milestone=reached, nodes=record.nodes)
        if not self._monitor.state.iterates or progress.last_at is None:
            return None
        # Some programs print no number: the loss lines of the HF Trainer.
        first = progress.first_iteration if progress.first_iteration is not None else progress.iteration
        detail = "an iteration" if first is None else f"iteration {first}"
        if progress.resumed_from is not None:
            detail += f", from the checkpoint of iteration {progress.resumed_from}"
        reached = Milestone(kind=MilestoneKind.RESUMED, attempt=attempt, at=progress.last_at, detail=detail)
        return Reached(**self.report(), milestone=reached)

    def _look_at_wait(self) -> Finding | None:
        if self._record is None or self._read_at is None:
            return None
        nodes = self._waiting.for_want_of(self._record, self._read_at)
        return CannotStart(**self.report(), nodes=nodes) if nodes else None

    def _look_at_gaps(self) -> Finding | None:
        """The first gap is told at once, more of them once in a while."""
        told, watched_s = self._order.lost_lines, (datetime.now(UTC) - self._began_at).total_seconds()
        grown = self._log.lost_lines > told
        return LinesLost(**self.report()) if grown and (not told or watched_s >= GAP_AGAIN_S) else None

    def _look_at_sight(self) -> Finding | None:
        """Blindness is shown, and never a reason to act. Sight is back once the job itself was seen again."""
        now = datetime.now(UTC)
        silent_since, reason = self._blindness(now)
        blind = silent_since is not None and (now - silent_since).total_seconds() >= self._blind_after_s
        if blind and self._order.blind_since is None:
            return SightChanged(**self.report(), blind_since=silent_since, reason=reason)
        if self._order.blind_since is not None and silent_since is None and self._record is not None:
            return SightChanged(**self.report(), blind_since=None)
        return None

    def _blindness(self, now: datetime) -> tuple[datetime | None, str]:
        if self._snapshots.silent_since is not None:
            why = f"the scheduler gives no answer: {self._snapshots.silent_because}"
            return self._snapshots.silent_since, redact(why)[:400]
        if not self.running or self._log.sight is SourceState.FRESH:
            return None, ""
        places = ", ".join(self._log.sources) or "the job names no output file"
        why = f" ({self._log.trouble})" if self._log.trouble else ""
        return self._log.silent_since(now), redact(f"the log is {self._log.sight.value}: {places}{why}")[:400]


def _is_another_job(record: JobRecord, order: WatchOrder) -> bool:
    """Whether `record` can't be of this attempt or a later one."""
    started_over = record.restart_count == order.attempt and record.submitted_at != order.submitted_at
    return record.restart_count < order.attempt or started_over
