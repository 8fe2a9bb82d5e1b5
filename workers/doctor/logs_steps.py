"""What the batch scripts of running jobs name for the output of their steps, and how much of it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from activities.logs.steps import StepFiles, batch_file
from activities.scheduler.protocol import JobRecord, JobUnknown
from activities.scheduler.step_files import GAP, StepFile, step_files, untold_files
from recovery.model import JobId
from workers.doctor.checks import Check, ok, warning

NAME = "files of steps"
MOST_CHARS = 200


class ScriptsInHand:
    """Tells the batch scripts that were read already."""

    def __init__(self, scripts: Sequence[tuple[JobRecord, str]]) -> None:
        self._scripts = {job.job_id: script for job, script in scripts}

    async def batch_script(self, job_id: JobId) -> str:
        """Return the job's batch script. Raises `JobUnknown` for one that was not read."""
        try:
            return self._scripts[job_id]
        except KeyError as error:
            raise JobUnknown(f"the batch script of job {job_id} was not read") from error


async def step_checks(steps: StepFiles, scripts: Sequence[tuple[JobRecord, str]]) -> list[Check]:
    """Have `steps` look for what `scripts` name; return how much of it is there, and which jobs' output is not read."""
    for job, _ in scripts:
        await steps.look_now(job)
    there = [_there(steps, scripts)] if scripts else []
    return [*there, *_untold(scripts)]


def _there(steps: StepFiles, scripts: Sequence[tuple[JobRecord, str]]) -> Check:
    named = [(job, file) for job, script in scripts for file in _named(job, script)]
    lacking = [(job, file) for job, file in named if not any(map(file.may_be, steps.found(job)))]
    says = f"{len(named)} named in {len(scripts)} batch scripts"
    if lacking:
        job, file = lacking[0]
        says += f", {len(lacking)} of them not there: job {job.job_id} has written nothing to {_shown(file)}"
        return warning(NAME, says, "unless that comes later, mount its file system here under the same path")
    return ok(NAME, f"{says}, {sum(len(steps.found(job)) for job, _ in scripts)} found")


def _named(job: JobRecord, script: str) -> Iterator[StepFile]:
    return (file for file in step_files(script, batch_file(job)) if file.path not in (job.stdout, job.stderr))


def _untold(scripts: Sequence[tuple[JobRecord, str]]) -> Iterator[Check]:
    for job, script in scripts:
        if names := untold_files(script, batch_file(job)):
            says = f"job {job.job_id}'s steps write to {', '.join(names)[:MOST_CHARS]}"
            remedy = "have its owner name the directory in the script itself, and put %j or $SLURM_JOB_ID into the name"
            yield warning(NAME, f"{says}: where that is only its shell knows, so it is not read", remedy)


def _shown(file: StepFile) -> str:
    return file.path.replace(GAP, "*")[:MOST_CHARS]
