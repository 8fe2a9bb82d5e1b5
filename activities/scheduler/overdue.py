"""Which holds of requeued jobs are relight's own, how long a hold has lasted, and whether it is to be released. Of jobs
that were submitted anew `unreleased` tells which wait for their release.

Nothing here reads a clock or speaks to anybody. Three clocks may be wrong: the worker's, which wrote ``since`` into the
mark; the controller's, which set the submit time; ours. `Sightings` believes each only as far as we can check it:

- The hold began no earlier than the mark and than the submit time, which the requeue moves: the later one counts.
- What the reading before did not show began after that reading, whatever the mark says: clocks that are behind cost a
  job less than one interval of its deadline. A time in the future counts as now: a clock that is ahead holds no job for
  longer than the deadline from when we first saw it.
- From the first sighting on, time is counted by the monotonic clock: ours may be set meanwhile.

What a fresh process finds at its first reading has no reading before: there the mark and the submit time are believed.
So a watchdog that is restarted again and again still releases in time; to release early it takes a worker's and a
controller's clock that are both behind ours, or ours ahead of both.

A limit of Slurm's (seen on 22.05): an administrator's hold on top of a requeuehold shows, the owner's own (``scontrol
hold`` as the owner, or ``uhold``) changes nothing that could be read. Such a hold is taken for ours and released; an
owner who wants the job down cancels it, or holds it once it is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import re2

from activities.scheduler.marker import Marker, carries_mark, read_marker
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from recovery.model import JobKey, Value

_ADVICE_KEY = re2.compile(
    r"recovery/([A-Za-z0-9][A-Za-z0-9._-]{0,39})/([0-9]{1,12}(?:_[0-9]{1,9})?)@([0-9]{1,10})#([0-9]{1,9})\.[0-9]{1,9}"
)


class Advised(NamedTuple):
    """What the key of an advice says, see `recovery.model.Advice.key`."""

    job: JobKey
    attempt: int


class OurHold(Value):
    """A hold that relight set and has not released."""

    job: JobKey
    attempt: int
    """The attempt of `job` that the audit trail tells of it at."""
    restart_count: int
    """Of the held attempt."""
    kind: Hold
    """REQUEUED, or USER: it was submitted anew, held."""
    advice_key: str
    since: datetime
    """When the hold began, by the controller and by the mark where that was set before it, whichever is later."""
    why: str
    stays: str = ""
    """Why it must not be released for now, for a person; empty: it may."""
    for_good: bool = False
    """And never."""

    @property
    def key(self) -> str:
        """Tells this hold from every other one, also of the same job or advice."""
        which = f"as {self.job.job_id}" if self.anew else self.restart_count
        return f"{self.advice_key}/{which}"

    @property
    def anew(self) -> bool:
        """Whether the job was submitted anew and has never run, rather than requeued."""
        return self.kind is Hold.USER

    def lacks_account(self, record: JobRecord) -> bool:
        """Whether an account of ours belongs into the job's AdminComment, once this hold is over."""
        bare = self.anew and read_marker(record.admin_comment) is None
        return bare or carries_mark(record.admin_comment, self.advice_key)

    def lasts(self, record: JobRecord) -> bool:
        """Whether a later read shows it still."""
        return record.hold is self.kind and record.restart_count == self.restart_count


class Release(Value):
    """The hold is ours and has lasted too long."""

    hold: OurHold
    held_for: timedelta


class Stay(Value):
    """The hold is ours and has lasted too long, and must not be released; a person is told why."""

    hold: OurHold


class Leave(Value):
    """The job is not to be touched, and why: a few words for a person."""

    reason: str


def read_advice_key(key: str) -> Advised | None:
    """Return what `key` says; None where it is none."""
    found = _ADVICE_KEY.fullmatch(key)
    if found is None:
        return None
    first_submitted = datetime.fromtimestamp(int(found[3]), UTC)
    return Advised(JobKey(cluster=found[1], job_id=found[2], submitted_at=first_submitted), int(found[4]))


def our_hold(record: JobRecord) -> OurHold | Leave:
    """Return the hold of `record` if it is ours, else why it is not one to release.

    A mark alone does not make a hold ours: it stays behind where an attempt ended before it could be cleared. A hold of
    a later attempt than the one that the mark's order led to was set by somebody else.
    """
    marker = read_marker(record.admin_comment)
    if not isinstance(marker, Marker):
        return Leave(reason="not marked by relight")
    if record.state is not JobState.PENDING:
        return Leave(reason=f"not pending but {record.state.value}")
    if record.hold is Hold.NONE:
        return Leave(reason="not held")
    if record.hold is not Hold.REQUEUED:
        return Leave(reason=f"held by another than relight ({record.hold.value})")
    if JobFlag.COMPLETING in record.flags:
        return Leave(reason="the attempt before is still ending")
    advised = read_advice_key(marker.holds)
    if advised is None or advised.job.job_id != record.job_id:
        return Leave(reason="the mark is not of an advice for this job")
    if record.restart_count > advised.attempt + 1:
        return Leave(reason="requeued by another since relight's own restart")
    return OurHold(
        job=advised.job,
        attempt=advised.attempt,
        restart_count=record.restart_count,
        kind=Hold.REQUEUED,
        advice_key=marker.holds,
        since=max(_in_utc(marker.since), _in_utc(record.submitted_at)),
        why=marker.why,
    )


def decide(hold: OurHold | Leave, held_for: timedelta, deadline: timedelta) -> Release | Stay | Leave:
    """Say what is to be done about a hold that `Sightings` has seen for `held_for`."""
    if isinstance(hold, Leave):
        return hold
    if held_for < deadline:
        left = deadline - held_for
        return Leave(reason=f"held by relight, for {left.total_seconds():.0f} s more at most")
    return Stay(hold=hold) if hold.stays else Release(hold=hold, held_for=held_for)


REMEMBERED_S = 86_400.0
"""A controller that crashed may restore a hold that it had released; it is the same hold, and as old."""


@dataclass(frozen=True)
class _Sighting:
    at_s: float
    held_for: timedelta


class Sightings:
    """Since when each of our holds has lasted, as far as readings of the scheduler show it."""

    def __init__(self) -> None:
        self._first: dict[str, _Sighting] = {}
        self._read_at_s: float | None = None

    def look(self, holds: Iterable[OurHold], *, now: datetime, monotonic_s: float) -> dict[str, timedelta]:
        """Take in all of our holds that one reading showed and return how long each has lasted, by `OurHold.key`.

        `now` is our clock and `monotonic_s` the monotonic one, both at the reading.
        """
        held_for = {}
        for hold in holds:
            first = self._first.get(hold.key) or _Sighting(monotonic_s, self._age(hold, now, monotonic_s))
            held_for[hold.key] = first.held_for + timedelta(seconds=monotonic_s - first.at_s)
            self._first[hold.key] = first
        self._read_at_s = monotonic_s
        self._forget_before(monotonic_s - REMEMBERED_S)
        return held_for

    def _forget_before(self, monotonic_s: float) -> None:
        self._first = {key: first for key, first in self._first.items() if first.at_s > monotonic_s}

    def _age(self, hold: OurHold, now: datetime, monotonic_s: float) -> timedelta:
        said = max(now - hold.since, timedelta())
        if self._read_at_s is None:
            return said
        return min(said, timedelta(seconds=monotonic_s - self._read_at_s))


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
