"""Whether the files that running jobs write to can be read from this host."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from activities.logs.files import FileTail
from activities.logs.protocol import LogCursor, SourceState
from activities.scheduler.protocol import JobRecord
from workers.doctor.checks import Check, failed, ok, unknown, warning

MOST_JOBS = 5
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


async def file_check(running: Sequence[JobRecord]) -> Check:
    """Look at the files of the jobs that started last."""
    newest = sorted(running, key=lambda job: job.started_at or _EVER, reverse=True)[:MOST_JOBS]
    if not newest:
        return unknown("output", "no job runs whose output could be looked for", "look again while one does")
    tail = FileTail()
    try:
        return await _looked_at(tail, newest)
    finally:
        await tail.close()


async def _looked_at(tail: FileTail, jobs: Sequence[JobRecord]) -> Check:
    read = 0
    for job in jobs:
        paths = tail.sources(job)
        if not paths:
            says = f"job {job.job_id} writes to no file"
            return warning("output", says, "its lines can be read only from a log store, if one collects them")
        for path in paths:
            chunk = await tail.read(LogCursor(source=path), 1)
            if chunk.state is SourceState.MISSING:
                remedy = "mount the jobs' file system here under the same path, or read a log store"
                return failed("output", f"job {job.job_id} writes to {path}, which is not there on this host", remedy)
            if chunk.state is not SourceState.FRESH:
                remedy = "let relight's account read it: permissions of the file and of each directory above it"
                return failed("output", f"job {job.job_id} writes to {path}: {chunk.detail}", remedy)
            read += 1
    return ok("output", f"{read} files of the {len(jobs)} newest running jobs can be read")
