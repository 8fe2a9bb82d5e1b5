"""The bounds within which every command runs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest

from activities.scheduler.command import MAX_COMPLAINT_BYTES, Finished, LocalRunner, run_command
from activities.scheduler.protocol import SchedulerUnavailable

ENV = {"PATH": "/usr/bin:/bin"}


async def run(*command: str, timeout_s: float = 10, max_answer_bytes: int = 1_000) -> Finished:
    return await run_command(command, env=ENV, timeout_s=timeout_s, max_answer_bytes=max_answer_bytes)


async def test_what_a_command_says_and_how_it_ends_comes_back() -> None:
    assert await run("sh", "-c", "echo said; echo complained >&2; exit 3") == (3, "said\n", "complained\n")


async def test_arguments_reach_the_command_as_they_are() -> None:
    text = "$(reboot); `id` 'q' \"q\" * \n ü --x"
    assert (await run("printf", "%s", text)).stdout == text


async def test_a_command_sees_only_the_environment_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    assert (await run("env")).stdout == "PATH=/usr/bin:/bin\n"


async def test_a_command_is_fed_what_it_is_to_read() -> None:
    script = "#!/bin/sh\necho ü\n" * 20_000

    fed = await run_command(["md5sum"], env=ENV, timeout_s=10, max_answer_bytes=1_000, stdin=script)

    assert fed.stdout.split()[0] == hashlib.md5(script.encode()).hexdigest()


async def test_a_command_that_reads_nothing_of_it_ends_all_the_same() -> None:
    ended = await run_command(["true"], env=ENV, timeout_s=10, max_answer_bytes=1_000, stdin="x" * 1_000_000)

    assert ended.exit_code == 0


async def test_commands_of_the_given_directory_go_before_all_others(tmp_path: Path) -> None:
    (tmp_path / "ls").write_text("#!/bin/sh\necho of the site\n")
    (tmp_path / "ls").chmod(0o755)

    assert (await LocalRunner(bin_dir=str(tmp_path)).run("ls")).stdout == "of the site\n"
    assert (await LocalRunner().run("ls", str(tmp_path))).stdout == "ls\n"


async def test_a_command_that_is_not_there_names_the_setting_that_says_where_it_is() -> None:
    with pytest.raises(SchedulerUnavailable, match=r"squeue-of-old cannot be started .*\(bin_dir, python\)"):
        await LocalRunner().run("squeue-of-old")


async def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert (await run("printf", r"a\377b")).stdout == "a\N{REPLACEMENT CHARACTER}b"


async def test_an_answer_without_end_is_cut_off_and_is_no_answer() -> None:
    began = time.monotonic()
    with pytest.raises(SchedulerUnavailable, match="more than 1000 bytes"):
        await run("yes")
    assert time.monotonic() - began < 5


async def test_answers_without_end_never_keep_their_caller() -> None:
    for _ in range(20):
        with pytest.raises(SchedulerUnavailable):
            async with asyncio.timeout(20):
                await run("sh", "-c", "yes & yes >&2")


async def test_a_long_complaint_is_cut_and_the_answer_kept() -> None:
    finished = await run("sh", "-c", "head -c 1000000 /dev/zero >&2; echo said")
    assert finished.stdout == "said\n"
    assert len(finished.stderr) == MAX_COMPLAINT_BYTES


async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(SchedulerUnavailable, match=r"sh did not answer within 0\.5 s"):
        await run("sh", "-c", f"sleep 20 & echo $! > {pid_file}; wait", timeout_s=0.5)
    assert time.monotonic() - began < 5
    assert not alive(int(pid_file.read_text()))


async def test_a_caller_that_gives_up_takes_its_command_along(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    running = asyncio.create_task(run("sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"))
    await asyncio.sleep(0.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(int(pid_file.read_text()))


async def test_a_command_that_is_not_there_is_no_answer() -> None:
    with pytest.raises(SchedulerUnavailable, match="no-such-command cannot be started"):
        await run("no-such-command")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
