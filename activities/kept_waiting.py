"""A job that waits in the queue and that Slurm will not start on what its constraints leave it.

Seen on 22.05.8 with a job of two nodes, one of them excluded, in a reservation of two: PENDING, BadConstraints, for
ever. Twice a minute Slurm tries it anew and gives no reason for some seconds. It starts at once when the list changes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.scheduler.protocol import JobRecord, JobState
from recovery.model import NodeName

CANNOT_START_AFTER = timedelta(seconds=30)
"""How long Slurm must say so before it is believed: a node may be about to come back."""
_CANNOT_START = "BadConstraints"
_TRIED_ANEW = "None"


class KeptWaiting:
    """Whether a job can't start because of `kept_off`, the nodes that relight keeps it off, over many readings."""

    def __init__(self, kept_off: tuple[NodeName, ...]) -> None:
        self._kept_off = kept_off
        self._since: datetime | None = None

    def for_want_of(self, record: JobRecord, read_at: datetime) -> tuple[NodeName, ...]:
        """Return the nodes that relight took from the job that can't start; empty where it may, or for now."""
        if record.state is not JobState.PENDING or record.reason not in (_CANNOT_START, _TRIED_ANEW):
            self._since = None
        elif record.reason == _CANNOT_START:
            self._since = self._since or read_at
            if read_at - self._since >= CANNOT_START_AFTER:
                return tuple(node for node in self._kept_off if node in record.excluded_nodes)
        return ()
