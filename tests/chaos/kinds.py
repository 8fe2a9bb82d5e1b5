"""The jobs of a run: all known ways to fail, and all that people may do to a job or want for it."""

from __future__ import annotations

from enum import StrEnum


class JobKind(StrEnum):
    """In which way a job fails, or what a person does to it."""

    XID79 = "xid79"
    """A GPU falls off the bus; the node stays bad."""
    HANG = "hang"
    KEY_ERROR = "keyerror"
    """The program's own bug, in every attempt."""
    SEGFAULT = "segfault"
    NODE_FAILURE = "node failure"
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    REQUEUED = "requeued by an administrator"
    HEALTHY = "healthy"
    CANCELLED = "owner-cancelled"
    CANCELLED_HELD = "owner-cancelled during recovery"
    HELD = "held by a person"
    HELD_TWICE = "held by a person during recovery"
    RELEASED = "released by a person during recovery"
    OWN_EXCLUSIONS = "own exclusions"
    NO_REQUEUE = "no requeue"
    OBSERVED = "observed"
    NOT_OPTED_IN = "not opted in"

    @property
    def opted_in(self) -> bool:
        """Whether its comment names relight."""
        return self is not JobKind.NOT_OPTED_IN

    @property
    def may_be_touched(self) -> bool:
        """Whether relight may change anything of it."""
        return self not in (JobKind.NOT_OPTED_IN, JobKind.OBSERVED)


FAULTS = {
    JobKind.XID79: "xid79",
    JobKind.OWN_EXCLUSIONS: "xid79",
    JobKind.HANG: "hang",
    JobKind.KEY_ERROR: "keyerror",
    JobKind.NOT_OPTED_IN: "keyerror",
    JobKind.HELD: "segfault",
    JobKind.SEGFAULT: "segfault",
    JobKind.CANCELLED_HELD: "segfault",
    JobKind.HELD_TWICE: "segfault",
    JobKind.RELEASED: "segfault",
    JobKind.NO_REQUEUE: "segfault",
    JobKind.OBSERVED: "segfault",
}
"""What the example training program is told to do."""

COMPLETES = (
    *(JobKind.XID79, JobKind.OWN_EXCLUSIONS, JobKind.HANG, JobKind.SEGFAULT, JobKind.RELEASED),
    *(JobKind.NODE_FAILURE, JobKind.REQUEUED, JobKind.HEALTHY),
)
"""These have to complete in the end, whatever is done to the house."""
