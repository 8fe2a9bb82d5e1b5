"""What a watch of one attempt reports. A healthy attempt reports nothing for hours; each report ends the watch."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from activities.chains import Stranded
from activities.logs.protocol import LogCursor
from activities.scheduler.protocol import JobRecord
from recovery.detection.state import MonitorState
from recovery.model import MAX_EVIDENCE, Evidence, JobKey, Milestone, NodeName, Progress, SymptomKind, Value
from recovery.optin import OptIn


class WatchOrder(Value):
    """Which attempt to watch, from where, and what needs no second report."""

    job: JobKey
    optin: OptIn
    attempt: int = Field(ge=0)
    submitted_at: datetime
    """The submit time that the attempt shows: see `JobKey`."""
    monitor: MonitorState = MonitorState()
    began: tuple[LogCursor, ...] = ()
    """Where the attempt's output begins; empty: not known yet."""
    logs: tuple[LogCursor, ...] = ()
    """Where reading stands; empty: at `began`."""
    ended: bool = False
    """The end was reported already: what is left to report is a requeue by others, or that the job is gone."""
    report_start: bool = False
    """Report the allocation and the first progress too: the attempt is a recovery's."""
    allocated: bool = False
    """The allocation was reported already."""
    blind_since: datetime | None = None
    lost_lines: int = Field(default=0, ge=0)
    """How many lost lines of the attempt were reported already."""
    answered_at: datetime | None = None
    """When the end of an attempt was answered last. A later reading shows whom that leaves waiting in vain."""
    stranded: Stranded = Stranded()
    """Who is known to wait in vain: only another answer is reported."""
    kept_off: tuple[NodeName, ...] = ()
    """Nodes that relight keeps the job off. Where it can't start for want of them, that is reported."""


class _Report(Value):
    """What all reports carry: how far the attempt is, and where the next watch continues."""

    at: datetime
    progress: Progress = Progress()
    monitor: MonitorState = MonitorState()
    began: tuple[LogCursor, ...] = ()
    logs: tuple[LogCursor, ...] = ()
    read_out: tuple[str, ...] = ()
    """Which sources of `logs` were read to the end of what they held."""
    evidence: tuple[Evidence, ...] = Field(default=(), max_length=MAX_EVIDENCE)
    lost_lines: int = Field(default=0, ge=0)
    """How many of the attempt's lines are known to be lost on their way from a log store."""

    @property
    def ends(self) -> tuple[LogCursor, ...]:
        """Where the attempt's output ends, if it ends with this report, in the sources that were read out."""
        return tuple(cursor.until(self.at) for cursor in self.logs if cursor.source in self.read_out)


class Ended(_Report):
    """The attempt reached one of Slurm's end states."""

    kind: Literal["ended"] = "ended"
    record: JobRecord


class Requeued(_Report):
    """The restart count moved on, not by this recovery: Slurm by itself, or a person."""

    kind: Literal["requeued"] = "requeued"
    record: JobRecord
    nodes: tuple[NodeName, ...] = ()
    """The allocation that the watched attempt had."""


class Faulted(_Report):
    """A fatal line while the attempt runs. `certain`: it was followed by no progress for its grace."""

    kind: Literal["faulted"] = "faulted"
    record: JobRecord
    happened_at: datetime
    certain: bool


class FaultSurvived(_Report):
    """Progress went on after a fatal line: the advice on it is withdrawn."""

    kind: Literal["fault_survived"] = "fault_survived"


class Stalled(_Report):
    """No completed marker within the deadline, while the log could be read."""

    kind: Literal["stalled"] = "stalled"
    record: JobRecord
    symptom: SymptomKind = SymptomKind.HANG
    summary: str


class Slowed(_Report):
    """Training goes on, slower than it did, and stays so. Never a reason to end the attempt by itself."""

    kind: Literal["slowed"] = "slowed"
    record: JobRecord
    happened_at: datetime
    summary: str


class Reached(_Report):
    """An attempt after a recovery got its allocation, or made its first progress."""

    kind: Literal["reached"] = "reached"
    milestone: Milestone
    nodes: tuple[NodeName, ...] = ()


class SightChanged(_Report):
    """The scheduler or the log can't be read since `blind_since`, or can be again (None)."""

    kind: Literal["sight_changed"] = "sight_changed"
    blind_since: datetime | None
    reason: str = ""


class DependentsStranded(_Report):
    """Other jobs wait in vain for this one since it failed; none, where there were some before."""

    kind: Literal["dependents_stranded"] = "dependents_stranded"
    stranded: Stranded


class CannotStart(_Report):
    """Slurm will not start the job on what its constraints leave; `nodes` is what relight took of that."""

    kind: Literal["cannot_start"] = "cannot_start"
    nodes: tuple[NodeName, ...]


class LinesLost(_Report):
    """More of the attempt's lines are known to be lost than were reported."""

    kind: Literal["lines_lost"] = "lines_lost"


class Gone(_Report):
    """The scheduler does not know the job any more, or its id belongs to another job now."""

    kind: Literal["gone"] = "gone"
    detail: str


class LeaseOver(_Report):
    """Nothing to report for the whole lease: watch on."""

    kind: Literal["lease_over"] = "lease_over"


Finding = Annotated[
    Ended
    | Requeued
    | Faulted
    | FaultSurvived
    | Stalled
    | Slowed
    | Reached
    | SightChanged
    | LinesLost
    | DependentsStranded
    | CannotStart
    | Gone
    | LeaseOver,
    Field(discriminator="kind"),
]
