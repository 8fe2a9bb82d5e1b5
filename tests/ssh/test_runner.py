"""Commands through a real sshd: what arrives, what comes back, and how everything is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.scheduler import ssh
from activities.scheduler.protocol import Refused, SchedulerUnavailable
from activities.scheduler.ssh import COMMANDS_AT_ONCE, MAX_COMMAND_BYTES, SshRunner
from tests.ssh.server import SshServer, ended

MakeRunner = Callable[..., SshRunner]

AWKWARD = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "\\",
    "\n",
    "a\nb\n",
    "$(id)",
    "`id`",
    "$HOME",
    ";id",
    "&& id",
    "| id",
    "*",
    "~",
    "#",
]
AWKWARD += ["> /tmp/x", "--", "-x", "ü 码 🔥", "'\"'\"'", "!!", "{a,b}", "$'\\n'", "\t", "\x1f", "%s"]
WORDS = st.lists(
    st.one_of(st.sampled_from(AWKWARD), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    min_size=1,
    max_size=12,
)


async def test_no_argument_breaks_out_of_its_place_whatever_it_holds(runner: MakeRunner) -> None:
    here, loop = runner(), asyncio.get_running_loop()

    @settings(max_examples=40, deadline=None)
    @given(WORDS)
    def every_word_arrives_as_it_was_sent(words: list[str]) -> None:
        command = here.run("printf", r"%s\0", *words)
        finished = asyncio.run_coroutine_threadsafe(command, loop).result(60)
        assert finished.stdout == "".join(f"{word}\0" for word in words)

    await asyncio.to_thread(every_word_arrives_as_it_was_sent)


async def test_what_a_command_says_and_how_it_ends_comes_back(runner: MakeRunner) -> None:
    here = runner()
    assert await here.run("sh", "-c", "echo said; echo complained >&2; exit 3") == (3, "said\n", "complained\n")
    assert (await here.run("sh", "-c", "kill -9 $$")).exit_code == -9


async def test_a_command_is_fed_what_it_should_read(runner: MakeRunner) -> None:
    here, script = runner(), "#!/bin/sh\n" + "echo 'ü $(id)'\n" * 50_000
    assert (await here.run("cat", stdin=script)).stdout == script
    assert (await here.run("true", stdin=script)).exit_code == 0
    assert (await here.run("cat")).stdout == ""


async def test_commands_share_one_connection_and_more_than_it_takes_wait_their_turn(
    sshd: SshServer, runner: MakeRunner
) -> None:
    here = runner()
    before = set(sshd.connections())
    finished = await asyncio.gather(*(here.run("echo", str(number)) for number in range(3 * COMMANDS_AT_ONCE)))
    assert [each.stdout for each in finished] == [f"{number}\n" for number in range(3 * COMMANDS_AT_ONCE)]
    assert len(set(sshd.connections()) - before) == 1


async def test_an_answer_without_end_is_cut_off_and_is_no_answer(
    runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "MAX_ANSWER_BYTES", 1_000_000)
    here = runner()
    with pytest.raises(SchedulerUnavailable, match="more than 1000000 bytes"):
        await here.run("yes")
    assert (await here.run("echo", "next")).stdout == "next\n"


async def test_a_command_that_stalls_is_given_up_and_told_to_die_and_the_connection_goes_on(
    sshd: SshServer, runner: MakeRunner
) -> None:
    here = runner(timeout_s=3)
    await here.run("true")
    connections = sshd.connections()
    with pytest.raises(SchedulerUnavailable, match="cluster alpha over ssh: sleep did not answer within 3 s"):
        await here.run("sleep", "20")
    assert (await here.run("echo", "next")).stdout == "next\n"
    assert sshd.connections() == connections
    # For root, sshd has no privileges to separate, and says that it got the signal and does not pass it on.
    assert "session signalling requires privilege separation" in sshd.log()


async def test_commands_that_were_given_up_and_do_not_end_never_take_all_sessions(
    sshd: SshServer, runner: MakeRunner
) -> None:
    here = runner()
    for _ in range(12):
        running = asyncio.create_task(here.run("sh", "-c", "echo up; exec sleep 20"))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (await here.run("echo", "next")).stdout == "next\n"


async def test_what_cannot_be_one_command_line_is_not_sent(runner: MakeRunner) -> None:
    here = runner()
    with pytest.raises(Refused, match=f"at most {MAX_COMMAND_BYTES}"):
        await here.run("echo", "'" * 32_768)
    with pytest.raises(ValueError, match="NUL"):
        await here.run("echo", "a\0b")
    longest = "x" * (MAX_COMMAND_BYTES - 20)
    assert (await here.run("echo", longest)).stdout == f"{longest}\n"


async def test_a_host_without_slurm_is_no_answer_and_the_remedy_is_named(runner: MakeRunner) -> None:
    with pytest.raises(SchedulerUnavailable, match=r"no-such-command is not found on the login host.*PATH"):
        await runner().run("no-such-command")


async def test_a_closed_runner_leaves_no_connection(sshd: SshServer, runner: MakeRunner) -> None:
    before = set(sshd.connections())
    here = runner()
    await here.run("true")
    mine = set(sshd.connections()) - before
    assert mine
    await here.close()
    assert await ended(sshd, mine)
