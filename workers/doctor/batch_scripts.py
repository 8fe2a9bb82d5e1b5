"""Whether jobs' batch scripts can be read, tried on those of jobs that run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from activities.logs.steps import BatchScripts
from activities.scheduler.protocol import JobRecord, JobUnknown, SchedulerError, SchedulerUnavailable
from activities.scheduler.site import Answer, Capability
from workers.doctor.checks import Check, ok, unknown, warning
from workers.log_settings import FileLogs
from workers.settings import ClusterSettings

MOST_JOBS = 5
NAME = "batch scripts"
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDIES = {
    "ssh": "give the key's forced command --scripts, and its account AdminLevel: see deploy/ssh/README.md",
    "rest": "set AccountingStoreFlags=job_script, and start slurmrestd with its slurmdbd plugin",
}
_LEVEL = "give relight's account AdminLevel: see deploy/slurm/README.md"


class ScriptsRead(NamedTuple):
    """The scripts of running jobs."""

    scripts: tuple[tuple[JobRecord, str], ...]
    check: Check
    """What reading them came to."""


def newest(running: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs that started last, at most `MOST_JOBS`."""
    return sorted(running, key=lambda job: job.started_at or _EVER, reverse=True)[:MOST_JOBS]


def wants_scripts(cluster: ClusterSettings) -> bool:
    """Whether anything in the settings of `cluster` needs batch scripts."""
    reads_steps = any(isinstance(place, FileLogs) and place.step_files for place in cluster.logs)
    return reads_steps or cluster.policy.resubmit


async def scripts_check(
    cluster: ClusterSettings, scheduler: BatchScripts, running: Sequence[JobRecord], can: Capability
) -> Check:
    """Read the scripts of jobs that run; without any, `can` is all that is known."""
    if can.answer is Answer.NO:
        what, _, remedy = can.reason.partition(": ")
        return warning(NAME, what, remedy)
    if running or can.answer is Answer.UNKNOWN:
        return (await read_scripts(cluster, scheduler, running)).check
    return ok(NAME, "may be read; no job runs that this could be tried on")


async def read_scripts(cluster: ClusterSettings, scheduler: BatchScripts, running: Sequence[JobRecord]) -> ScriptsRead:
    """Read the scripts of the jobs that started last."""
    jobs, read, lacking = newest(running), [], ""
    if not jobs:
        return ScriptsRead((), unknown(NAME, "no job runs whose script could be read", "look again while one does"))
    for job in jobs:
        try:
            read.append((job, await scheduler.batch_script(job.job_id)))
        except JobUnknown as error:
            # One that salloc started has none.
            lacking = str(error)
        except SchedulerUnavailable as error:
            return ScriptsRead(tuple(read), unknown(NAME, str(error), "look again once the scheduler answers"))
        except SchedulerError as error:
            return ScriptsRead(tuple(read), _unreadable(cluster, str(error)))
    if not read:
        return ScriptsRead((), _unreadable(cluster, lacking))
    return ScriptsRead(tuple(read), ok(NAME, f"{len(read)} of the {len(jobs)} newest running jobs can be read"))


def _unreadable(cluster: ClusterSettings, why: str) -> Check:
    return warning(NAME, why, _REMEDIES.get(cluster.scheduler.kind, _LEVEL))
