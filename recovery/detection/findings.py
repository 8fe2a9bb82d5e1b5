"""What detection can find in a running attempt. Every finding has a `key`, so that it is taken once."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from recovery.detection.markers import Phase
from recovery.model import Evidence, Value


class FatalLine(Value):
    """A line was read after which an attempt can't go on by itself. Not yet a failure: the line may be a quotation."""

    kind: Literal["fatal_line"] = "fatal_line"
    at: datetime
    """When it was read, by our clock."""
    line: Evidence

    @property
    def key(self) -> str:
        """Identifies this finding within the attempt."""
        return f"fatal_line@{self.at.isoformat()}"


class FaultConfirmed(Value):
    """A fatal line, and then no completed marker within its grace, while the job still runs."""

    kind: Literal["fault_confirmed"] = "fault_confirmed"
    at: datetime
    """When the fatal line was read."""
    grace_s: float
    """How long nothing was finished since."""
    line: Evidence
    later: tuple[Evidence, ...] = ()
    """Further fatal lines, the first few."""

    @property
    def key(self) -> str:
        """Identifies this finding within the attempt."""
        return f"fault_confirmed@{self.at.isoformat()}"


class FaultSurvived(Value):
    """Training went on after a fatal line: what was said of it is withdrawn."""

    kind: Literal["fault_survived"] = "fault_survived"
    at: datetime
    """When the fatal line was read."""
    line: Evidence

    @property
    def key(self) -> str:
        """Identifies this finding within the attempt."""
        return f"fault_survived@{self.at.isoformat()}"


class Stall(Value):
    """No completed marker for longer than the attempt's deadline, in a log that could be read all the time."""

    kind: Literal["stall"] = "stall"
    since: datetime
    """The last completed marker, or the beginning of the watch for an attempt that shows none."""
    deadline_s: float
    phase: Phase
    evidence: tuple[Evidence, ...] = ()
    """The last completed marker, and the report of a communication that timed out, where there are such."""

    @property
    def key(self) -> str:
        """Identifies this finding within the attempt."""
        return f"stall@{self.since.isoformat()}"


class Straggler(Value):
    """Training goes on, slower than it did, and stays so. Never a reason to end it by itself."""

    kind: Literal["straggler"] = "straggler"
    since: datetime
    """About when it became slower."""
    usual_s: float
    """Seconds per iteration before."""
    now_s: float
    """Seconds per iteration since."""
    evidence: tuple[Evidence, ...] = ()
    """The last completed marker."""

    @property
    def key(self) -> str:
        """Identifies this finding within the attempt."""
        return f"straggler@{self.since.isoformat()}"


Detection = FatalLine | FaultConfirmed | FaultSurvived | Stall
