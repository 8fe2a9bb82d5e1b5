"""The job's output as a watch reads it: whatever the files are or hold, no exception, and no verdict from blindness."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from activities.findings import Ended, Faulted, LeaseOver, Requeued, SightChanged, Stalled
from activities.scheduler.protocol import JobFlag, JobState
from recovery.detection.settings import DetectionSettings
from recovery.optin import OptIn
from tests.watch.conftest import StartWatch
from tests.watch.scripted import QUICK, XID, JobUnderWatch, iteration, loaded, saved, submitted_at

HANGS_AFTER_1_S = QUICK.model_copy(update={"hang_after_s": 1.0, "settle_s": 0.3})
SHORT = {"settings": HANGS_AFTER_1_S, "blind_after_s": 0.4}


def truncate(job: JobUnderWatch) -> None:
    """What Slurm does to the output file when the next attempt starts."""
    job.log.write_text("")


async def test_silence_in_a_log_that_can_be_read_is_a_hang(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(**SHORT)
    await job.trains(1, 4)
    stalled = await watch.finding()
    assert isinstance(stalled, Stalled)
    assert "deadline 1 s" in stalled.summary
    assert "iteration" in stalled.evidence[0].text
    assert await start(job.order_after(job.order(), stalled), **SHORT).silent_for(1.2)


async def test_a_missing_log_is_blindness_and_no_hang(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(**SHORT)
    await job.trains(1, 4)
    job.log.unlink()
    blind = await watch.finding()
    assert isinstance(blind, SightChanged)
    assert blind.blind_since is not None
    assert blind.reason == f"the log is missing: {job.log}"
    order = job.order_after(job.order(), blind, blind_since=blind.blind_since)
    watch = start(order, **SHORT)
    assert await watch.silent_for(1.5)
    job.writes(iteration(5))
    seen = await watch.finding()
    assert isinstance(seen, SightChanged)
    assert seen.blind_since is None
    assert seen.progress.iteration == 5


async def test_a_log_that_cannot_be_read_is_blindness_and_no_hang(job: JobUnderWatch, start: StartWatch) -> None:
    job.log.unlink()
    job.log.mkdir()
    blind = await start(**SHORT).finding()
    assert isinstance(blind, SightChanged)
    assert blind.reason == f"the log is unreadable: {job.log}"
    order = job.order_after(job.order(), blind, blind_since=blind.blind_since)
    assert await start(order, **SHORT).silent_for(1.5)


async def test_a_job_without_an_output_file_is_blindness(job: JobUnderWatch, start: StartWatch) -> None:
    job.shows(stdout="/dev/null", stderr="")
    await job.seen_by_the_poller()
    blind = await start(**SHORT).finding()
    assert isinstance(blind, SightChanged)
    assert "names no output file" in blind.reason


@pytest.mark.parametrize("how", ["missing", "directory"])
async def test_there_is_no_hang_while_one_of_two_files_cannot_be_read(
    how: str, job: JobUnderWatch, start: StartWatch
) -> None:
    errors = job.log.with_suffix(".err")
    errors.write_text("warming up\n")
    job.shows(stderr=str(errors))
    await job.seen_by_the_poller()
    watch = start(settings=HANGS_AFTER_1_S, blind_after_s=60)
    await job.trains(1, 4)
    job.log.unlink()
    if how == "directory":
        job.log.mkdir()
    assert await watch.silent_for(1.6)


async def test_an_error_file_that_is_thrown_away_does_not_blind(job: JobUnderWatch, start: StartWatch) -> None:
    job.shows(stderr="/dev/null")
    await job.seen_by_the_poller()
    watch = start(**SHORT)
    await job.trains(1, 4)
    assert isinstance(await watch.finding(), Stalled)


async def test_standard_output_and_error_are_read_apart(job: JobUnderWatch, start: StartWatch) -> None:
    errors = job.log.with_suffix(".err")
    errors.write_text("")
    job.shows(stderr=str(errors))
    await job.seen_by_the_poller()
    watch = start()
    await job.trains(1, 3)
    errors.write_text(f"warning\nwarning\n{XID}\n")
    faulted = await watch.finding()
    assert isinstance(faulted, Faulted)
    assert (faulted.evidence[0].source, faulted.evidence[0].line) == (str(errors), 3)
    assert faulted.progress.iteration == 3
    assert {cursor.source for cursor in faulted.logs} == {str(job.log), str(errors)}


async def test_an_end_is_told_with_where_the_output_ends_in_the_files_that_were_read_out(
    job: JobUnderWatch, start: StartWatch
) -> None:
    errors = job.log.with_suffix(".err")
    errors.mkdir()
    job.shows(stderr=str(errors))
    await job.seen_by_the_poller()
    watch = start()
    await job.trains(1, 3)
    job.writes("its last words")
    job.shows(JobState.FAILED)
    ended = await watch.finding()
    assert isinstance(ended, Ended)
    assert [(end.source, end.read_to) for end in ended.ends] == [(str(job.log), job.log.stat().st_size)]


async def test_a_log_that_appears_late_is_read_from_its_first_line(job: JobUnderWatch, start: StartWatch) -> None:
    job.log.unlink()
    watch = start()
    assert await watch.silent_for(0.3)
    job.writes(iteration(1), XID)
    faulted = await watch.finding()
    assert (faulted.progress.iteration, faulted.evidence[0].line) == (1, 2)


async def requeue(job: JobUnderWatch, start: StartWatch) -> Requeued:
    """Let the first attempt train, fail by a line, and be requeued by others."""
    watch = start(settings=DetectionSettings())
    await job.trains(1, 3)
    job.writes(saved(3))
    job.shows(JobState.PENDING, 1, nodes=())
    requeued = await watch.finding()
    assert isinstance(requeued, Requeued)
    job.writes(XID, "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-03-01T08:10:00 DUE TO JOB REQUEUE ***")
    return requeued


async def test_lines_of_the_attempt_before_do_not_count_in_an_appended_log(
    job: JobUnderWatch, start: StartWatch
) -> None:
    requeued = await requeue(job, start)
    old = job.log.stat().st_size
    order = job.order(1)
    job.shows(JobState.RUNNING, 1)
    await job.seen_by_the_poller()
    watch = start(order)
    await watch.heard(lambda memory: bool(memory.began))
    assert watch.memory.began[0].offset == old
    job.writes(loaded(3))
    await job.trains(4, 6)
    job.shows(JobState.FAILED, 1)
    ended = await watch.finding()
    assert isinstance(ended, Ended)
    assert (ended.progress.resumed_from, ended.progress.first_iteration) == (3, 4)
    assert requeued.progress.first_iteration == 1


async def test_an_attempt_in_a_log_written_anew_begins_at_its_first_line(job: JobUnderWatch, start: StartWatch) -> None:
    requeued = await requeue(job, start)
    truncate(job)
    job.shows(JobState.RUNNING, 1)
    job.writes(loaded(3), iteration(4), saved(4), XID)
    faulted = await start(job.order_of_next_attempt(requeued, 1)).finding()
    assert isinstance(faulted, Faulted)
    assert (faulted.progress.first_iteration, faulted.progress.checkpoint) == (4, 4)
    assert faulted.evidence[0].line == 4
    assert faulted.began[0].offset == 0, "attribution must find the attempt's output from its first line on"


async def test_lines_of_the_next_attempt_never_count_for_this_one(job: JobUnderWatch, start: StartWatch) -> None:
    """The next attempt starts and writes the file anew while slurmctld gives no answer."""
    watch = start()
    await job.trains(1, 3)
    await watch.heard(lambda memory: memory.monitor.progress.iteration == 3)
    job.scheduler.silent = True
    truncate(job)
    job.writes(loaded(2), iteration(3), iteration(4), XID)
    assert await watch.silent_for(0.5)
    job.shows(JobState.RUNNING, 1)
    job.scheduler.silent = False
    requeued = await watch.finding()
    assert isinstance(requeued, Requeued)
    assert (requeued.progress.iteration, requeued.progress.resumed_from) == (3, None)
    faulted = await start(job.order_of_next_attempt(requeued, 1)).finding()
    assert isinstance(faulted, Faulted)
    assert (faulted.progress.resumed_from, faulted.progress.first_iteration) == (2, 3)


async def test_a_log_that_its_owner_emptied_is_followed_on(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    await job.trains(1, 3)
    await watch.heard(lambda memory: memory.monitor.progress.iteration == 3)
    truncate(job)
    job.writes(iteration(4), XID)
    faulted = await watch.finding()
    assert isinstance(faulted, Faulted)
    assert (faulted.progress.first_iteration, faulted.progress.iteration) == (1, 4)


async def test_an_attempt_whose_old_output_cannot_be_read_begins_only_when_it_can(
    job: JobUnderWatch, start: StartWatch, tmp_path: Path
) -> None:
    job.writes(iteration(9), XID)
    hidden = job.log.rename(tmp_path / "hidden")
    job.log.mkdir()
    job.shows(JobState.RUNNING, 1)
    watch = start(job.order(1))
    assert await watch.silent_for(0.3)
    assert watch.memory.began == ()
    job.log.rmdir()
    hidden.rename(job.log)
    await watch.heard(lambda memory: bool(memory.began))
    await job.trains(10, 12)
    job.shows(JobState.FAILED, 1)
    ended = await watch.finding()
    assert isinstance(ended, Ended)
    assert ended.progress.first_iteration == 10


async def test_a_progress_bar_that_redraws_itself_is_progress(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(**SHORT)
    with job.log.open("a") as file:
        for n in range(1, 16):
            file.write(f"\rEpoch 0:  {n:2d}%|###       | {n}/100 [00:{n:02d}<01:00,  1.00s/it, loss=2.1]")
            file.flush()
            await asyncio.sleep(0.1)
    job.shows(JobState.FAILED)
    ended = await watch.finding()
    assert isinstance(ended, Ended)
    assert ended.progress.iteration == 15


async def test_colours_and_broken_bytes_and_endless_lines_are_read_past(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    with job.log.open("ab") as file:
        file.write(b"\x1b[32m" + iteration(1).encode() + b"\x1b[0m\n")
        file.write(b"\xff\xfe\x00garbage \xc3( \xed\xa0\x80\n" + bytes(range(256)) + b"\n")
        file.write(b"x" * 10_000_000 + b"\n")
        file.write(b"\xf0\x28 " + iteration(2).encode("utf-8") + b"\n")
        file.write(b"\x1b[1;31m" + XID.encode() + b"\x1b[0m\n")
    faulted = await watch.finding()
    assert isinstance(faulted, Faulted)
    assert faulted.progress.iteration == 2
    assert faulted.evidence[0].text == XID


async def test_a_flood_is_read_in_turns_and_to_its_end(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(**SHORT)
    noise = "loading shard of the data set and printing every bit of it\n" * 40_000
    with job.log.open("a") as file:
        for n in range(1, 5):
            file.write(f"{noise}{iteration(n)}\n")
    job.shows(JobState.FAILED)
    assert (await watch.finding(timeout_s=20)).progress.iteration == 4


@pytest.mark.parametrize("pattern", ["step (", "no group [0-9]+", "(?P<iteration>" + "x" * 400 + ")"])
async def test_a_progress_pattern_that_cannot_be_used_is_left_out(
    pattern: str, job: JobUnderWatch, start: StartWatch
) -> None:
    watch = start(job.order(optin=OptIn.model_construct(progress_pattern=pattern)), lease_s=0.5)
    job.writes(iteration(4))
    finding = await watch.finding()
    assert isinstance(finding, LeaseOver)
    assert finding.progress.iteration == 4


async def test_a_jobs_own_progress_pattern_is_used(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start(job.order(optin=OptIn(progress_pattern="did (?P<iteration>[0-9]+)$")), lease_s=0.5)
    job.writes("did 41", "did 42")
    finding = await watch.finding()
    assert isinstance(finding, LeaseOver)
    assert finding.progress.iteration == 42


async def test_last_words_are_heard_while_a_requeued_job_is_completing(job: JobUnderWatch, start: StartWatch) -> None:
    watch = start()
    await job.trains(1, 3)
    job.shows(JobState.PENDING, 1, flags=(JobFlag.COMPLETING,), submitted_at=submitted_at(0))
    await job.seen_by_the_poller()
    job.writes(saved(3))
    await watch.heard(lambda memory: memory.monitor.progress.checkpoint == 3)
