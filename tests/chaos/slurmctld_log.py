"""slurmctld's log as calls about single jobs. The wording was seen on Slurm 22.05.8.

Whoever requeues a job, at the end of it there stands "Requeuing": for one that ran, once its processes are gone. What
Slurm requeues by itself it announces before; after a crash of the controller what was COMPLETING ends once more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from activities.scheduler.hostlist import expand
from activities.scheduler.protocol import Hold, JobState
from tests.chaos.records import Call, Verb

_LINE = re.compile(r"\[(?P<at>[-0-9T:.]+)\] (?P<text>.*)")
_WORDINGS = (
    (Verb.REQUEUE, re.compile(r"Requeuing JobId=(?P<job>\d+)")),
    (Verb.CONSTRAIN, re.compile(r"sched: _update_job: setting exc_nodes to (?P<nodes>\S*) for JobId=(?P<job>\d+)")),
    (Verb.CONSTRAIN, re.compile(r"_update_job: setting admin_comment to .* for JobId=(?P<job>\d+)")),
    (Verb.RELEASE, re.compile(r"sched: _release_job_rec: release hold on JobId=(?P<job>\d+)")),
    (Verb.START_NOW, re.compile(r"sched: _update_job: setting begin to \S+ for JobId=(?P<job>\d+)")),
    (Verb.CANCEL, re.compile(r"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=(?P<job>\d+)")),
    (Verb.HOLD, re.compile(r"sched: _hold_job_rec: hold on JobId=(?P<job>\d+)")),
)
_ANNOUNCED = re.compile(
    r"requeue job JobId=(?P<one>\d+) due to failure of node"
    r"|_job_complete: requeue JobId=(?P<other>\d+) due to node failure"
)
_STILL_ENDING = re.compile(r"_sync_nodes_to_comp_job: JobId=(?P<job>\d+) in completing state")
_STATES = {Verb.CANCEL: JobState.CANCELLED, Verb.HOLD: JobState.RUNNING}
_HOLDS = {Verb.REQUEUE: Hold.REQUEUED, Verb.HOLD: Hold.USER}
_RESTARTS = (Verb.REQUEUE, Verb.NODE_FAILURE)


@dataclass(frozen=True)
class Crash:
    """A crash of the controller: all that it knew is what it had saved."""

    killed_at: datetime
    read_at: datetime
    """When it was asked, after it was up again."""
    restarts: Mapping[str, int]
    """Restart count of each job at that moment."""


@dataclass(frozen=True)
class _Seen:
    at: datetime
    verb: Verb
    job_id: str
    exclude: tuple[str, ...] | None


def calls_in(
    lines: Iterable[str], is_ours: Callable[[Verb, str], bool], crashes: Iterable[Crash] = ()
) -> Iterator[Call]:
    """Yield the calls that took effect. The log names no caller, so that `is_ours` says whose a verb on a job was."""
    seen = list(_read(lines))
    forgotten = _forgotten(seen, crashes)
    restarts: Counter[str] = Counter()
    for number, call in enumerate(seen):
        if call.verb in _RESTARTS and number not in forgotten:
            restarts[call.job_id] += 1
        yield Call(
            job_id=call.job_id,
            verb=call.verb,
            ours=is_ours(call.verb, call.job_id),
            received_at=call.at,
            at=call.at,
            accepted=True,
            restart_count=restarts[call.job_id],
            state=_STATES.get(call.verb, JobState.PENDING),
            hold=_HOLDS.get(call.verb, Hold.NONE),
            exclude=call.exclude,
            forgotten=number in forgotten,
        )


def _forgotten(seen: list[_Seen], crashes: Iterable[Crash]) -> set[int]:
    """Return the places of those restarts that a crash undid: as many of the last ones before it as the job had fewer
    afterwards."""
    forgotten: set[int] = set()
    for crash in crashes:
        for job_id, count in crash.restarts.items():
            restarts = [n for n, call in enumerate(seen) if call.job_id == job_id and call.verb in _RESTARTS]
            before = [n for n in restarts if n not in forgotten and seen[n].at <= crash.killed_at]
            since = [n for n in restarts if crash.killed_at < seen[n].at <= crash.read_at]
            undone = len(before) - (count - len(since))
            forgotten.update(before[len(before) - undone :] if undone > 0 else ())
    return forgotten


def _read(lines: Iterable[str]) -> Iterator[_Seen]:
    whose = _Requeues()
    for line in lines:
        if (parts := _LINE.fullmatch(line)) is None:
            continue
        whose.hear(parts["text"])
        for verb, wording in _WORDINGS:
            if (found := wording.match(parts["text"])) is not None:
                job_id, nodes = found["job"], found.groupdict().get("nodes")
                exclude = None if nodes is None else expand(nodes)
                seen = whose.requeue(job_id) if verb is Verb.REQUEUE else verb
                yield _Seen(datetime.fromisoformat(parts["at"]).astimezone(), seen, job_id, exclude)
                break


class _Requeues:
    """Tells the requeues that somebody asked for from Slurm's own."""

    def __init__(self) -> None:
        self._announced: set[str] = set()
        self._still_ending: set[str] = set()
        self._last: dict[str, Verb] = {}

    def hear(self, text: str) -> None:
        if (found := _ANNOUNCED.match(text)) is not None:
            self._announced.add(found["one"] or found["other"])
        elif (found := _STILL_ENDING.match(text)) is not None:
            self._still_ending.add(found["job"])

    def requeue(self, job_id: str) -> Verb:
        """Return whose the job's requeue is that is just told."""
        verb = Verb.NODE_FAILURE if job_id in self._announced else Verb.REQUEUE
        if job_id in self._still_ending and job_id not in self._announced:
            verb = self._last.get(job_id, Verb.REQUEUE)
        self._announced.discard(job_id)
        self._still_ending.discard(job_id)
        self._last[job_id] = verb
        return verb
