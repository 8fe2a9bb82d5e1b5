"""The blows that may fall in a run: on the parts of the house, and on jobs in the name of people and hardware."""

from __future__ import annotations

from enum import StrEnum

from recovery.model import Value
from tests.chaos.kinds import JobKind


class BlowKind(StrEnum):
    """What is done; the words are those of the report."""

    KILL_WORKER = "kills: worker"
    KILL_TEMPORAL = "kills: Temporal"
    KILL_POSTGRES = "kills: PostgreSQL"
    KILL_SCHEDULER = "kills: scheduler"
    KILL_NODE_DAEMON = "kills: slurmd"
    KILL_WATCHDOG = "kills: watchdog"
    STOP_WORKER = "clock stopped: worker"
    STOP_TEMPORAL = "clock stopped: Temporal"
    STOP_POSTGRES = "clock stopped: PostgreSQL"
    STOP_SCHEDULER = "clock stopped: scheduler"
    FILL_TEMPORAL = "disk full: Temporal"
    FILL_POSTGRES = "disk full: PostgreSQL"
    FILL_SPOOL = "disk full: watchdog's spool"
    FAIL_NODE = "node failures"
    END_BY_LIMIT = "ended by time limit"
    END_BY_KERNEL = "ended by OOM killer"
    CANCEL = "people: cancel"
    HOLD = "people: hold"
    RELEASE = "people: release"
    REQUEUE = "people: requeue"


class Blow(Value):
    """One blow, `at_s` seconds after the first jobs were submitted."""

    at_s: float
    kind: BlowKind
    lasts_s: float = 0.0
    """How long what was killed stays away, what was stopped stands still, a disk stays full."""
    job: int = -1
    """Whom it hits: the place in the plan's jobs; -1: no job."""
    in_recovery: bool = False
    """It falls when the job is next seen between two attempts, and not before `at_s`."""


class HitsHouse(Value):
    """How a blow on the house is drawn."""

    chance: float
    lasts_at_most_s: float


class HitsJob(Value):
    """How a blow on a job is drawn."""

    blow: BlowKind
    within_s: float
    """Of the job's submission."""
    in_recovery: bool = False
    lasts_s: float = 0.0


ON_THE_HOUSE = {
    BlowKind.KILL_TEMPORAL: HitsHouse(chance=0.6, lasts_at_most_s=5),
    BlowKind.KILL_POSTGRES: HitsHouse(chance=0.6, lasts_at_most_s=5),
    BlowKind.KILL_SCHEDULER: HitsHouse(chance=0.3, lasts_at_most_s=4),
    BlowKind.KILL_NODE_DAEMON: HitsHouse(chance=0.5, lasts_at_most_s=3),
    BlowKind.KILL_WATCHDOG: HitsHouse(chance=0.7, lasts_at_most_s=3),
    BlowKind.STOP_WORKER: HitsHouse(chance=0.5, lasts_at_most_s=14),
    BlowKind.STOP_TEMPORAL: HitsHouse(chance=0.4, lasts_at_most_s=7),
    BlowKind.STOP_POSTGRES: HitsHouse(chance=0.4, lasts_at_most_s=7),
    BlowKind.STOP_SCHEDULER: HitsHouse(chance=0.5, lasts_at_most_s=12),
    BlowKind.FILL_TEMPORAL: HitsHouse(chance=0.3, lasts_at_most_s=5),
    BlowKind.FILL_POSTGRES: HitsHouse(chance=0.3, lasts_at_most_s=5),
    BlowKind.FILL_SPOOL: HitsHouse(chance=0.3, lasts_at_most_s=8),
}

ON_JOBS = {
    JobKind.CANCELLED: HitsJob(blow=BlowKind.CANCEL, within_s=15),
    JobKind.CANCELLED_HELD: HitsJob(blow=BlowKind.CANCEL, within_s=3, in_recovery=True),
    JobKind.HELD: HitsJob(blow=BlowKind.HOLD, within_s=6.5),
    JobKind.HELD_TWICE: HitsJob(blow=BlowKind.HOLD, within_s=3, in_recovery=True),
    JobKind.RELEASED: HitsJob(blow=BlowKind.RELEASE, within_s=3, in_recovery=True),
    JobKind.NODE_FAILURE: HitsJob(blow=BlowKind.FAIL_NODE, within_s=10, lasts_s=6),
    JobKind.REQUEUED: HitsJob(blow=BlowKind.REQUEUE, within_s=10),
    JobKind.TIME_LIMIT: HitsJob(blow=BlowKind.END_BY_LIMIT, within_s=10),
    JobKind.OUT_OF_MEMORY: HitsJob(blow=BlowKind.END_BY_KERNEL, within_s=10),
}
