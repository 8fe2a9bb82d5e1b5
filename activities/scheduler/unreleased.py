"""Which jobs that were submitted anew still wait, held, for their release, and which of them may get it: what the
watchdog decides of resubmissions, from a reading of all jobs.

A job waits where it is pending as it was submitted, carries a lineage, came promptly (`Lineage.is_prompt`), and has no
account of relight's in AdminComment: the release is followed by one, and who holds the job from then on is a person.
Two things must be known before it may be released, and the scheduler forgets both within minutes:

- *No other job for the order has run, or will.* Of the first that was sent that is certain for ever
  (`Lineage.is_of_the_oldest`). Of a later one only he can tell who has watched since it was sent: `Readings`. Of many
  the one with the lowest number may be released, and only while the others wait as it does, or were cancelled.
- *The old job has ended as the order needs.* What had ended when the new one was sent can only be requeued by a person.
  Of what still ran then the end has to be seen: the new one is not released where a person cancelled the old one (no
  fresh mark of ours is on it, see `Replaced`), nor where that has completed.

So as soon as both are seen the job gets our mark, and as soon as one is seen to be false for good, it is passed over.
From then on AdminComment says so, whatever is forgotten and whoever looks.

A comment is its owner's word. Who writes a lineage into a held job of their own can get that job released, or kept
held, and nothing else: they could release it themselves. An administrator's hold is never touched, jobs of others do
not count, and a job that is submitted again by hand, with a copy of the comment, does not come promptly.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from activities.scheduler.lineage import CLOCK_SKEW, Lineage, in_order_of_submission, read_lineage
from activities.scheduler.marker import Marker, read_marker
from activities.scheduler.overdue import Leave, OurHold, read_advice_key
from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.resubmission import is_over, overtaken_by
from recovery.model import JobId, JobKey

LONGEST_GAP = timedelta(seconds=60)
"""Between two readings, for no job to come and be forgotten unseen: a second submission is sent only where an ended job
stays listed for two minutes at least (see `Resubmitter`)."""
KEPT = timedelta(seconds=600)
"""How long an order is remembered of which no job is left. A later one that is not prompt is never released."""
NOT_PROMPT = "it came long after it was sent, or was submitted by hand with a copy of the comment"
WHY_NEVER = {
    "completed": "has completed",
    "owner_cancelled": "was cancelled, and not by relight",
    "superseded": "was put back into the queue",
}

Order = tuple[str, str]
"""A user and the key of an advice."""


class Readings:
    """What an unbroken row of readings showed of each order."""

    def __init__(self) -> None:
        self._began_at: datetime | None = None
        self._last_s = 0.0
        self._oldest: dict[Order, tuple[int, float]] = {}

    def look(self, jobs: Iterable[JobRecord], *, now: datetime, monotonic_s: float) -> None:
        """Take in a reading. `now` is our clock and `monotonic_s` the monotonic one, both when it was there."""
        if self._began_at is None or monotonic_s - self._last_s > LONGEST_GAP.total_seconds():
            self._began_at = now
        self._last_s = monotonic_s
        for job in jobs:
            if lineage := read_lineage(job.comment):
                order, number = (job.user, lineage.order), in_order_of_submission(job)
                self._oldest[order] = (min(number, self._oldest.get(order, (number, 0.0))[0]), monotonic_s)
        too_old_s = monotonic_s - KEPT.total_seconds()
        self._oldest = {order: seen for order, seen in self._oldest.items() if seen[1] > too_old_s}

    def show_nothing_older(self, job: JobRecord, lineage: Lineage) -> bool:
        """Whether all jobs were seen that came for the order since `job` was sent, and none before it."""
        oldest = self._oldest.get((job.user, lineage.order))
        watched = self._began_at is not None and self._began_at + CLOCK_SKEW <= lineage.since
        return watched and oldest is not None and oldest[0] == in_order_of_submission(job)


class Unreleased(NamedTuple):
    """What a reading shows of jobs that were submitted anew and have no account of relight's."""

    holds: dict[JobId, OurHold | Leave]
    """Those that wait."""
    unmarked: list[OurHold]
    """Those that may be released once they have waited long enough, and whose AdminComment does not say so yet."""
    unaccounted: list[OurHold]
    """Those that were released, or must never be: AdminComment is to say which."""


class _Line(NamedTuple):
    job: JobRecord
    lineage: Lineage


def find_unreleased(jobs: Iterable[JobRecord], cluster: str, readings: Readings) -> Unreleased:
    """Return which jobs of `cluster` wait, as a reading of all of its jobs shows it. `readings` has taken it in."""
    by_id = {job.job_id: job for job in jobs}
    orders: dict[Order, list[_Line]] = {}
    for job in by_id.values():
        if lineage := read_lineage(job.comment):
            orders.setdefault((job.user, lineage.order), []).append(_Line(job, lineage))
    found = Unreleased({}, [], [])
    for lines in orders.values():
        oldest, *newer = sorted(lines, key=lambda line: in_order_of_submission(line.job))
        if _is_untouched(oldest):
            never = _why_never(oldest, newer, by_id)
            _add(found, oldest, cluster, never=never, not_now=never or _why_not_now(oldest, by_id, readings))
        for line in filter(_is_untouched, newer):
            never = f"job {oldest.job.job_id} is the one for its order"
            _add(found, line, cluster, never=never, not_now=never)
    return found


def _is_untouched(line: _Line) -> bool:
    job, word = line.job, read_marker(line.job.admin_comment)
    bare = word is None or (isinstance(word, Marker) and word.holds == line.lineage.order)
    return job.state is JobState.PENDING and not job.restart_count and bare


def _add(found: Unreleased, line: _Line, cluster: str, *, never: str, not_now: str) -> None:
    """Sort the job in, of which `never` and `not_now` say why it may not be released, where it may not."""
    hold, job = _hold_of(line, cluster), line.job
    if isinstance(hold, Leave):
        found.holds[job.job_id] = hold
        return
    if not line.lineage.is_prompt(job):
        if hold.lasts(job):
            found.holds[job.job_id] = hold.model_copy(update={"stays": NOT_PROMPT})
        return
    if not hold.lasts(job):
        found.unaccounted.append(hold)
        return
    hold = hold.model_copy(update={"stays": not_now, "for_good": bool(never)})
    found.holds[job.job_id] = hold
    if never:
        found.unaccounted.append(hold)
    elif not not_now and read_marker(job.admin_comment) is None:
        found.unmarked.append(hold)


def _hold_of(line: _Line, cluster: str) -> OurHold | Leave:
    """Return the hold that the job was submitted with, whether or not it lasts."""
    job, lineage = line
    advised = read_advice_key(lineage.order)
    if advised is None or advised.job.job_id != lineage.of:
        return Leave(reason="its lineage is not of an advice for the job that it names")
    if advised.job.cluster != cluster:
        return Leave(reason=f"its lineage is of another cluster ({advised.job.cluster})")
    if job.hold not in (Hold.NONE, Hold.USER):
        return Leave(reason=f"held by another than relight ({job.hold.value})")
    return OurHold(
        job=JobKey(cluster=cluster, job_id=job.job_id, submitted_at=job.submitted_at),
        attempt=0,
        restart_count=0,
        kind=Hold.USER,
        advice_key=lineage.order,
        since=job.submitted_at,
        why=f"submitted in place of job {lineage.of}",
    )


def _why_never(line: _Line, newer: list[_Line], jobs: dict[JobId, JobRecord]) -> str:
    """Why the oldest job that is there for an order must never be released; empty: there is no such reason."""
    if ran := [each.job.job_id for each in newer if not _waits_or_never_ran(each.job)]:
        return f"job {ran[0]}, submitted for the same order, is not held any more"
    advised, old = read_advice_key(line.lineage.order), _old_of(line, jobs)
    if old is None or advised is None:
        return ""
    if old.user != line.job.user:
        return f"job {old.job_id} is another user's"
    overtaken = overtaken_by(old, line.lineage.order, advised.attempt)
    return f"job {old.job_id} {WHY_NEVER[overtaken]}" if overtaken else ""


def _why_not_now(line: _Line, jobs: dict[JobId, JobRecord], readings: Readings) -> str:
    """What has to end first, or to be known and is not; empty: the job may be released."""
    job, lineage = line
    old = _old_of(line, jobs)
    if old is not None and not is_over(old):
        return f"job {old.job_id} has not ended"
    if read_marker(job.admin_comment) is not None:
        return ""
    if old is None and not lineage.old_is_over:
        return f"how job {lineage.of} ended can't be told any more"
    oldest = lineage.is_of_the_oldest(job) or readings.show_nothing_older(job, lineage)
    return "" if oldest else "whether another job ran for its order can't be told any more"


def _waits_or_never_ran(job: JobRecord) -> bool:
    if job.state is JobState.CANCELLED:
        return not job.nodes
    return job.state is JobState.PENDING and job.hold is not Hold.NONE and not job.restart_count


def _old_of(line: _Line, jobs: dict[JobId, JobRecord]) -> JobRecord | None:
    """Return the job that the new one stands for; None where it is forgotten, or its id is another's by now."""
    advised, old = read_advice_key(line.lineage.order), jobs.get(line.lineage.of)
    if advised is None or old is None:
        return None
    is_it = old.restart_count > advised.attempt or (
        # Slurm tells times in whole seconds.
        advised.job.submitted_at - CLOCK_SKEW <= old.submitted_at <= line.lineage.since + CLOCK_SKEW
    )
    return old if is_it else None
