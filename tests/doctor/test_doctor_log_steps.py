"""What `relight doctor logs` finds of the files that running jobs' batch scripts name for their steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.scheduler.protocol import (
    JobRecord,
    JobUnknown,
    NotOffered,
    NotPermitted,
    SchedulerError,
    SchedulerUnavailable,
)
from tests.doctor.logs_site import JOB_ID, looked_at, running_job
from workers.doctor.batch_scripts import read_scripts
from workers.doctor.checks import Check, Finding
from workers.doctor.logs import examine
from workers.settings import ClusterSettings

FILES = {"kind": "files"}
SSH = {"kind": "ssh", "hosts": ["login1"], "user": "relight", "known_hosts": "/etc/relight/known_hosts"}
REST = {"kind": "rest", "url": "https://slurm.example.org:6820", "token_file": "/etc/relight/token"}


UNTOLD = "srun -o told-%j.log true\nsrun -o $LOG_DIR/%j.out python train.py\n"


class Scripts:
    """Tells batch scripts by job, or why not."""

    def __init__(self, **told: str | SchedulerError) -> None:
        self._told = {name.removeprefix("job_"): script for name, script in told.items()}

    async def batch_script(self, job_id: str) -> str:
        script = self._told[job_id]
        if isinstance(script, SchedulerError):
            raise script
        return script


def job_in(directory: Path, job_id: str = JOB_ID) -> JobRecord:
    """A job that runs in `directory` and whose own output is there."""
    (directory / "slurm.out").write_text("begins\n")
    update = {"job_id": job_id, "job_number": job_id, "work_dir": str(directory)}
    return running_job(str(directory / "slurm.out")).model_copy(update=update)


async def told_of(directory: Path, script: str | SchedulerError) -> dict[str, Check]:
    return await looked_at(FILES, job_in(directory), scheduler=Scripts(job_4711=script))


async def test_files_that_are_found_are_counted_and_read(tmp_path: Path) -> None:
    (tmp_path / "step-4711-a.log").write_text("step 1\n")
    (tmp_path / "step-4712-a.log").write_text("another job's\n")

    checks = await told_of(tmp_path, "srun -o step-%j-$(date +%s).log python train.py\n")

    assert {check.finding for check in checks.values()} == {Finding.OK}
    assert checks["files of steps"].says == "1 named in 1 batch scripts, 1 found"
    assert checks["output"].says.startswith("2 files of the 1 newest running jobs")
    assert checks["batch scripts"].says.startswith("1 of the 1")


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    checks = await told_of(tmp_path, "srun -o logs/%j-$(date +%s).log python train.py\n")

    assert checks["files of steps"].finding is Finding.WARNING
    assert f"job 4711 has written nothing to {tmp_path}/logs/4711-*.log" in checks["files of steps"].says
    assert "mount" in checks["files of steps"].remedy


async def test_a_steps_file_that_can_not_be_read_fails(tmp_path: Path) -> None:
    (tmp_path / "step-4711.log").mkdir()

    checks = await told_of(tmp_path, "srun -o step-%j.log python train.py\n")

    assert checks["output"].finding is Finding.FAILED
    assert f"{tmp_path}/step-4711.log" in checks["output"].says


async def test_a_job_whose_output_can_not_be_told_is_named_with_what_its_owner_can_do(tmp_path: Path) -> None:
    job, other = job_in(tmp_path), job_in(tmp_path, "4712")
    (tmp_path / "told-4711.log").touch()
    scripts = Scripts(job_4711=UNTOLD, job_4712="python train.py\n")

    checks = await examine(ClusterSettings(name="alpha"), [job, other], scripts)
    told, untold = (check for check in checks if check.name == "files: files of steps")

    assert (told.finding, told.says) == (Finding.OK, "1 named in 2 batch scripts, 1 found")
    assert untold.finding is Finding.WARNING
    assert "job 4711's steps write to $LOG_DIR/%j.out" in untold.says
    assert "%j" in untold.remedy


@pytest.mark.parametrize(
    ("scheduler", "error", "remedy"),
    [
        ({"kind": "cli"}, NotPermitted("reading the batch script: Invalid user id"), "deploy/slurm/README.md"),
        (SSH, NotPermitted("the forced command refused scontrol write"), "--scripts"),
        (REST, NotOffered("slurmrestd is started without its slurmdbd plugin"), "slurmdbd plugin"),
        (REST, JobUnknown("accounting has none"), "AccountingStoreFlags=job_script"),
    ],
)
async def test_scripts_that_can_not_be_read_are_one_line_with_a_remedy(
    scheduler: dict[str, Any], error: SchedulerError, remedy: str, tmp_path: Path
) -> None:
    cluster = ClusterSettings.model_validate({"name": "alpha", "scheduler": scheduler})
    jobs = [job_in(tmp_path), job_in(tmp_path, "4712")]

    read = await read_scripts(cluster, Scripts(job_4711=error, job_4712=error), jobs)

    assert read.scripts == ()
    assert (read.check.finding, str(error) in read.check.says) == (Finding.WARNING, True)
    assert remedy in read.check.remedy


async def test_a_job_without_a_script_is_no_reason_to_warn(tmp_path: Path) -> None:
    jobs = [job_in(tmp_path), job_in(tmp_path, "4712")]
    scripts = Scripts(job_4711=JobUnknown("salloc"), job_4712="python train.py\n")

    checks = await looked_at(FILES, *jobs, scheduler=scripts)

    assert {check.finding for check in checks.values()} == {Finding.OK}
    assert checks["batch scripts"].says.startswith("1 of the 2")


async def test_a_scheduler_that_is_silent_leaves_it_unknown_and_the_output_is_looked_at(tmp_path: Path) -> None:
    checks = await told_of(tmp_path, SchedulerUnavailable("no answer"))

    assert {name: check.finding for name, check in checks.items()} == {
        "output": Finding.OK,
        "batch scripts": Finding.UNKNOWN,
    }


async def test_where_steps_are_not_read_nobody_asks_for_scripts(tmp_path: Path) -> None:
    checks = await looked_at(FILES | {"step_files": False}, job_in(tmp_path), scheduler=Scripts())

    assert [*checks] == ["output"]
