"""Where one cluster's lines are read, looked at as relight reads them, and the way of one marked line to there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import chain

from activities.scheduler.protocol import JobRecord, Scheduler, SchedulerError
from activities.scheduler.submission import Resubmission
from activities.stores.errors import StoreError
from workers.doctor.checks import Check, failed, ok, unknown
from workers.doctor.logs_files import file_checks
from workers.doctor.logs_probe import Mark, await_in_files, await_in_store, submission
from workers.doctor.logs_store import StoreVisit, refused
from workers.doctor.slurm_probe import NotSo, cancel, started
from workers.log_settings import FileLogs, LogSettings
from workers.log_sources import make_log_store
from workers.settings import ClusterSettings


async def examine(cluster: ClusterSettings, running: Sequence[JobRecord], scheduler: object) -> tuple[Check, ...]:
    """Return every check of the places that the cluster's `logs` name. `running`: the jobs that run now, by which is
    judged whether their lines are there; without any, only what can be told without them. `scheduler`: where it tells
    jobs' batch scripts, the files that these name are looked at too."""
    found: list[Check] = []
    for settings in cluster.logs:
        if isinstance(settings, FileLogs):
            checks = await file_checks(cluster, settings, running, scheduler)
        else:
            checks = []
            store = make_log_store(settings, cluster.name)
            try:
                async for check in StoreVisit(store, settings, cluster.name, running).checks():
                    checks.append(check)
            except StoreError as error:
                checks.append(refused(error))
            finally:
                await store.close()
        found += (_of(settings, check) for check in checks)
    return tuple(found)


async def await_line(cluster: ClusterSettings, mark: Mark) -> tuple[Check, ...]:
    """Wait for a marked line in all of the places at once, and return what each link on its way came to."""

    async def awaited(settings: LogSettings) -> list[Check]:
        if isinstance(settings, FileLogs):
            checks = await await_in_files(mark)
        else:
            checks = await await_in_store(settings, cluster.name, mark)
        return [_of(settings, check, "probe: ") for check in checks]

    return tuple(chain.from_iterable(await asyncio.gather(*map(awaited, cluster.logs))))


async def probe(cluster: ClusterSettings, scheduler: Scheduler, mark: Mark, directory: str) -> AsyncIterator[Check]:
    """Submit a job that prints the marked line, wait for the line, and cancel the job whatever happened."""
    if not isinstance(scheduler, Resubmission):
        yield unknown("probe", "this transport can't submit a job", "print a line in a job of yours, and use --line")
        return
    submitted_s = time.time()
    try:
        job_id = await scheduler.submit(submission(mark.token, directory))
    except SchedulerError as error:
        yield failed("probe: submit", str(error), "see that this account may submit to the default partition")
        return
    try:
        job = await started(scheduler, job_id)
        yield ok("probe: start", f"job {job_id} runs on {', '.join(job.nodes)}, and prints to {job.stdout}")
        for check in await await_line(cluster, replace(mark, job=job, not_before_s=submitted_s)):
            yield check
    except (SchedulerError, NotSo) as error:
        yield failed("probe: start", str(error), f"see scontrol show job {job_id}")
    finally:
        cancelled = await asyncio.shield(cancel(scheduler, job_id))
    yield cancelled


def _of(settings: LogSettings, check: Check, step: str = "") -> Check:
    """The check under its place's name, without terminal codes that a store's labels may hold."""
    told = {"name": f"{settings.called}: {step}{check.name}", "says": check.says, "remedy": check.remedy}
    return check.model_copy(update={key: "".join(c if c.isprintable() else " " for c in told[key]) for key in told})
