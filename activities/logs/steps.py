"""Which files the steps of a job write to, found on the shared file system by what its batch script names.

The script is read once for each job. Its directories are looked through often while an attempt is young, and now and
then later; one listing serves all jobs that write to the same directory. Nobody waits for any of that.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import structlog

from activities.logs.turns import Turns
from activities.node_names import node_in
from activities.scheduler.filename_pattern import BatchFile
from activities.scheduler.protocol import JobRecord, JobState, SchedulerError, SchedulerUnavailable
from activities.scheduler.step_files import GAP, StepFile, step_files
from recovery.model import JobId

YOUNG_S = 60.0
LOOK_EVERY_S, LOOK_LATER_EVERY_S = 2.0, 30.0
LOOK_TIMEOUT_S = 5.0
ASK_AGAIN_S = 60.0
"""After a scheduler that gave no answer."""
SLACK_S = 2.0
"""The clocks of a file server and of slurmctld agree so far."""
KEPT_JOBS = 5_000
KEPT_LISTINGS = 500
MAX_FOUND = 64
"""Files of one attempt: of a job that writes one for each of thousands of tasks the first are followed."""

log = structlog.get_logger(__name__)


@runtime_checkable
class BatchScripts(Protocol):
    """Tells jobs' batch scripts."""

    async def batch_script(self, job_id: JobId) -> str:
        """Return the job's batch script. Raises `SchedulerError`."""
        ...


@dataclass
class _Job:
    """What is known of one job, and of the attempt that it is in."""

    files: tuple[StepFile, ...] | None = None
    """What its script names; None: not read yet."""
    attempt: int = -1
    found: tuple[str, ...] = ()
    seen: bool = False
    """Whether the attempt's files were looked for."""
    due_s: float = 0.0
    young_until_s: float = 0.0
    looking: asyncio.Task[None] | None = None


class StepFiles:
    """The files of jobs' steps; one instance serves all jobs of a cluster."""

    def __init__(self, scripts: BatchScripts, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._scripts = scripts
        self._monotonic = monotonic
        self._asking = asyncio.Semaphore(1)
        self._jobs: OrderedDict[tuple[str, str, str], _Job] = OrderedDict()
        self._turns = Turns[tuple[str, ...]]()
        self._listings: dict[str, tuple[float, tuple[str, ...]]] = {}

    def look(self, record: JobRecord) -> None:
        """See to it that the files of the attempt in `record` are looked for, if it is time to."""
        if record.state is not JobState.RUNNING or not record.work_dir:
            return
        job, now_s = self._job(record), self._monotonic()
        if job.attempt != record.restart_count:
            job.attempt, job.found, job.seen = record.restart_count, (), False
            job.due_s, job.young_until_s = now_s, now_s + YOUNG_S
        if now_s >= job.due_s and (job.looking is None or job.looking.done()):
            job.due_s = now_s + (LOOK_EVERY_S if now_s < job.young_until_s else LOOK_LATER_EVERY_S)
            job.looking = asyncio.create_task(self._look(job, record), name=f"step files of {record.job_id}")

    async def look_now(self, record: JobRecord) -> None:
        """Look for the files of the attempt in `record`, and wait until that is done."""
        self.look(record)
        if (job := self._known(record)) is not None and job.looking is not None:
            await job.looking

    def found(self, record: JobRecord) -> tuple[str, ...]:
        """Return the files that the attempt in `record` has written to, as far as they were found."""
        job = self._known(record)
        return job.found if job is not None else ()

    def is_over(self, source: str, record: JobRecord) -> bool:
        """Whether `source` is a file of an earlier attempt, and the one in `record` has others."""
        job = self._known(record)
        if job is None or not job.seen or source in job.found:
            return False
        return any(each.has_gaps and each.may_be(source) for each in job.files or ())

    def is_whole(self, source: str, record: JobRecord) -> bool:
        """Whether all that stands in `source`, one of those found, is of the attempt in `record`."""
        job = self._known(record)
        named = [each for each in (job.files or () if job else ()) if each.may_be(source)]
        return any(each.is_the_jobs and (each.has_gaps or record.restart_count == 0) for each in named)

    def host(self, source: str, record: JobRecord) -> str:
        """Return the node that alone writes to `source`, where srun names the file after it; else empty. A node's name
        that the batch script puts there is its own host's, whoever's lines follow."""
        job = self._known(record)
        named = [each for each in (job.files or () if job else ()) if each.may_be(source)]
        return node_in(source, record.nodes) if named and all(each.is_by_node for each in named) else ""

    def close(self) -> None:
        """Give up what is under way."""
        for job in self._jobs.values():
            if job.looking is not None:
                job.looking.cancel()
        self._turns.close()

    def _job(self, record: JobRecord) -> _Job:
        job = self._jobs.setdefault(_key(record), _Job())
        self._jobs.move_to_end(_key(record))
        if len(self._jobs) > KEPT_JOBS:
            self._jobs.popitem(last=False)
        return job

    def _known(self, record: JobRecord) -> _Job | None:
        job = self._jobs.get(_key(record))
        return job if job is not None and job.attempt == record.restart_count else None

    async def _look(self, job: _Job, record: JobRecord) -> None:
        if job.files is None:
            await self._read_script(job, record)
        if job.files:
            await self._find(job, job.files, record)

    async def _read_script(self, job: _Job, record: JobRecord) -> None:
        """Ask for the script, one job at a time: a worker that begins has hundreds to ask for."""
        try:
            async with self._asking:
                script = await self._scripts.batch_script(record.job_id)
        except SchedulerUnavailable:
            job.due_s = self._monotonic() + ASK_AGAIN_S
        except SchedulerError as error:
            log.info("the files of its steps are not known", job=record.job_id, because=str(error)[:200])
            job.files = ()
        else:
            told = (record.stdout, record.stderr)
            job.files = tuple(each for each in step_files(script, batch_file(record)) if each.path not in told)

    async def _find(self, job: _Job, files: tuple[StepFile, ...], record: JobRecord) -> None:
        attempt, since_s = job.attempt, (record.started_at or datetime.now(UTC)).timestamp() - SLACK_S
        known = job.found
        for each in files:
            looking = partial(self._written, each, since_s, frozenset(known))
            written = await self._turns.ask(each.path, looking, LOOK_TIMEOUT_S)
            if written is None:
                return  # its file system does not answer: the next look may find out
            known = (*known, *written)
        if job.attempt == attempt:
            job.found, job.seen = tuple(dict.fromkeys(known))[:MAX_FOUND], True

    def _written(self, file: StepFile, since_s: float, known: frozenset[str]) -> tuple[str, ...]:
        """On a thread: what the attempt has written to and is not known yet."""
        return tuple(path for path in self._paths(file) if path not in known and _written_at_s(path) >= since_s)

    def _paths(self, file: StepFile) -> list[str]:
        if not file.has_gaps:
            return [file.path]
        folder = posixpath.dirname(file.path)
        if GAP in folder:
            return sorted(map(str, Path("/").glob(file.as_glob[1:])))
        return [path for path in self._listing(folder) if file.may_be(path)]

    def _listing(self, folder: str) -> tuple[str, ...]:
        listed_at_s, paths = self._listings.get(folder, (float("-inf"), ()))
        if self._monotonic() - listed_at_s > LOOK_EVERY_S:
            try:
                with os.scandir(folder) as entries:
                    paths = tuple(sorted(entry.path for entry in entries))
            except OSError:
                paths = ()
            if len(self._listings) >= KEPT_LISTINGS:
                self._listings.clear()
            self._listings[folder] = (self._monotonic(), paths)
        return paths


def _written_at_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - thousands of paths that are no Path objects
    except OSError:
        return float("-inf")


def _key(record: JobRecord) -> tuple[str, str, str]:
    return record.job_id, record.name, record.work_dir


def batch_file(record: JobRecord) -> BatchFile:
    """Return what a job's batch script may name files after."""
    _, _, task = record.job_id.partition("_")
    return BatchFile(
        job_number=record.job_number or record.job_id,
        array_job_id=record.array_job_id,
        array_task_id=task,
        name=record.name,
        user=record.user,
        batch_host=record.batch_host,
        work_dir=record.work_dir,
    )
