"""Whether the files that running jobs and their steps write to can be read from this host."""

from __future__ import annotations

from collections.abc import Sequence

from activities.logs.files import FileTail
from activities.logs.protocol import LogCursor, SourceState
from activities.logs.steps import BatchScripts, StepFiles
from activities.scheduler.protocol import JobRecord
from workers.doctor.batch_scripts import newest, read_scripts
from workers.doctor.checks import Check, failed, ok, unknown, warning
from workers.doctor.logs_steps import ScriptsInHand, step_checks
from workers.log_settings import FileLogs
from workers.settings import ClusterSettings


async def file_checks(
    cluster: ClusterSettings, settings: FileLogs, running: Sequence[JobRecord], scheduler: object
) -> list[Check]:
    """Look at the files of the jobs that started last; at those of their steps where `scheduler` tells scripts."""
    jobs = newest(running)
    if not jobs:
        return [unknown("output", "no job runs whose output could be looked for", "look again while one does")]
    if not settings.step_files or not isinstance(scheduler, BatchScripts):
        return [await _output(FileTail(), jobs)]
    read = await read_scripts(cluster, scheduler, jobs)
    steps = StepFiles(ScriptsInHand(read.scripts))
    found = await step_checks(steps, read.scripts)
    return [await _output(FileTail(steps), jobs), read.check, *found]


async def _output(tail: FileTail, jobs: Sequence[JobRecord]) -> Check:
    try:
        return await _looked_at(tail, jobs)
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
