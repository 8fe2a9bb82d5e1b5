"""The files of a job's steps, as its batch script names them: found while the job runs, each attempt's own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.logs import steps
from activities.logs.attempt import AttemptLog
from activities.logs.files import FileTail
from activities.logs.steps import StepFiles
from activities.scheduler.protocol import JobRecord, JobUnknown, SchedulerUnavailable
from tests.logs.conformance import JOB_IDS, running

SCRIPT = 'LOGS=$SLURM_SUBMIT_DIR/logs\nsrun --output="$LOGS/%x-%j_$(date +%s).log" python train.py\n'


class Scripts:
    """A scheduler that tells a job's batch script."""

    def __init__(self) -> None:
        self.script = SCRIPT
        self.errors: list[Exception] = []
        self.asked = 0

    async def batch_script(self, job_id: str) -> str:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.script


class Writing:
    """A job that writes to files of its steps, and the log that follows it."""

    def __init__(self, directory: Path) -> None:
        self.scripts = Scripts()
        self.files = FileTail(StepFiles(self.scripts))
        self.directory = directory
        (directory / "logs").mkdir()
        self.job_id = next(JOB_IDS)

    def record(self, attempt: int = 0) -> JobRecord:
        record = running(self.job_id, attempt, datetime.now(UTC), str(self.directory / "slurm.out"))
        return record.model_copy(update={"name": "gpt", "work_dir": str(self.directory)})

    def write(self, name: str, text: str, *, ago_s: float = 0.0) -> Path:
        file = self.directory / "logs" / name
        with file.open("a") as log:
            log.write(f"{text}\n")
        os.utime(file, (time.time() - ago_s, time.time() - ago_s))
        return file

    def log(self, record: JobRecord, before: AttemptLog | None = None) -> AttemptLog:
        """The log of an attempt, from where the one before ended."""
        log = AttemptLog(self.files, began=before.cursors if before else ())
        log.belongs_to(record, datetime.now(UTC))
        return log


@pytest.fixture
async def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Writing]:
    monkeypatch.setattr(steps, "LOOK_EVERY_S", 0.05)
    writing = Writing(tmp_path)
    (tmp_path / "slurm.out").write_text("")
    yield writing
    await writing.files.close()


async def hears(log: AttemptLog, *expected: str) -> list[str]:
    """Read until all that is expected was heard, and for a moment longer."""
    heard: list[str] = []
    async with asyncio.timeout(10):
        while not set(expected) <= set(heard):
            heard += [line.line.text for line in await log.read()]
            await asyncio.sleep(0.02)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        heard += [line.line.text for line in await log.read()]
        await asyncio.sleep(0.02)
    return heard


async def test_a_steps_file_is_read_from_its_start_once_it_is_there_and_no_other_jobs(job: Writing) -> None:
    log = job.log(job.record())
    job.write(f"gpt-{job.job_id}0_1.log", "another job's")
    assert await hears(log) == []
    job.write(f"gpt-{job.job_id}_1.log", "first")
    assert await hears(log, "first") == ["first"]
    job.write(f"gpt-{job.job_id}_1.log", "second")
    job.write(f"gpt-{job.job_id}_2.log", "of a second step")

    assert sorted(await hears(log, "second", "of a second step")) == ["of a second step", "second"]
    assert job.scripts.asked == 1


async def test_each_attempt_has_its_own_files(job: Writing) -> None:
    first = job.log(job.record())
    old = job.write(f"gpt-{job.job_id}_1.log", "first attempt")
    await hears(first, "first attempt")
    again = job.record(attempt=1)
    job.write(f"gpt-{job.job_id}_1.log", "its last words", ago_s=60)
    second = job.log(again, before=first)
    job.write(f"gpt-{job.job_id}_2.log", "second attempt")

    assert "second attempt" in await hears(second, "second attempt")
    assert old.as_posix() not in [cursor.source for cursor in second.cursors]
    old.unlink()
    job.write(f"gpt-{job.job_id}_2.log", "goes on")
    await hears(second, "goes on")
    assert second.sight.value == "fresh", "a file of the first attempt that is gone makes nobody blind"


async def test_what_an_earlier_attempt_left_is_not_read_when_the_job_comes_under_guard_later(job: Writing) -> None:
    job.write(f"gpt-{job.job_id}_1.log", "first attempt", ago_s=600)
    job.write(f"gpt-{job.job_id}_2.log", "second attempt")

    assert await hears(job.log(job.record(attempt=1)), "second attempt") == ["second attempt"]


async def test_of_a_file_that_other_jobs_write_to_as_well_only_what_is_new_counts(job: Writing) -> None:
    job.scripts.script = "python train.py >> logs/train.log"
    job.write("train.log", "an earlier job's fault")
    log = job.log(job.record())
    assert await hears(log) == []
    job.write("train.log", "this one's")

    assert await hears(log, "this one's") == ["this one's"]


async def test_a_job_whose_script_nobody_has_is_followed_where_slurm_says(job: Writing) -> None:
    job.scripts.errors = [JobUnknown("no script")]
    log = job.log(job.record())
    (job.directory / "slurm.out").write_text("a line\n")
    job.write(f"gpt-{job.job_id}_1.log", "unseen")

    assert await hears(log, "a line") == ["a line"]
    assert job.scripts.asked == 1


async def test_a_scheduler_that_gives_no_answer_is_asked_again_later(
    job: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "ASK_AGAIN_S", 0.2)
    job.scripts.errors = [SchedulerUnavailable("timed out")]
    log = job.log(job.record())
    job.write(f"gpt-{job.job_id}_1.log", "first")

    assert await hears(log, "first") == ["first"]
    assert job.scripts.asked == 2


async def test_a_slow_scheduler_keeps_nobody_waiting(job: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asyncio.Event()

    async def slow(job_id: str) -> str:
        await answer.wait()
        return SCRIPT

    monkeypatch.setattr(job.scripts, "batch_script", slow)
    log = job.log(job.record())
    (job.directory / "slurm.out").write_text("a line\n")
    job.write(f"gpt-{job.job_id}_1.log", "first")

    assert await hears(log, "a line") == ["a line"]
    answer.set()
    assert await hears(log, "first") == ["first"]


async def test_the_lines_of_a_file_that_srun_names_after_a_node_are_that_nodes(job: Writing) -> None:
    job.scripts.script = "srun -o logs/%j-%N.log python train.py\nsrun -o logs/%j-all-$(hostname).log python test.py\n"
    record = job.record().model_copy(update={"nodes": ("n1", "n1-2", "n2")})
    log = job.log(record)
    for name in ("n2", "n1-2", "all-n1", "elsewhere"):
        job.write(f"{job.job_id}-{name}.log", f"from {name}")
    heard: dict[str, str] = {}
    async with asyncio.timeout(10):
        while len(heard) < 4:
            heard |= {each.line.text: each.line.host for each in await log.read()}
            await asyncio.sleep(0.02)
    assert heard["from n2"] == "n2"
    assert heard["from n1-2"] == "n1-2"
    assert heard["from elsewhere"] == heard["from all-n1"] == ""

    again = {began.source: await job.files.read_range(began, 1 << 20) for began in log.began}
    [of_n2] = [stretch.lines for source, stretch in again.items() if source.endswith("-n2.log")]
    assert [(line.text, line.host) for line in of_n2] == [("from n2", "n2")]

    written_anew = job.directory / "logs" / f"{job.job_id}-n2.log"
    written_anew.write_text("other\n")
    [cursor] = [each for each in log.cursors if each.source.endswith("-n2.log")]
    chunk = await job.files.read(cursor)
    assert [(line.text, line.host) for line in chunk.lines] == [("other", "n2")]
    job.write(written_anew.name, "and more")
    chunk = await job.files.read(chunk.cursor)
    assert [(line.text, line.host) for line in chunk.lines] == [("and more", "n2")]


async def test_a_node_that_the_batch_script_puts_into_a_name_is_not_whose_lines_stand_there(job: Writing) -> None:
    job.scripts.script = "srun -o logs/%j-$(hostname).log python train.py\n"
    log = job.log(job.record().model_copy(update={"nodes": ("n1", "n2")}))
    job.write(f"{job.job_id}-n1.log", "of all nodes")
    async with asyncio.timeout(10):
        while not (heard := await log.read()):
            await asyncio.sleep(0.02)
    assert [each.line.host for each in heard] == [""]
