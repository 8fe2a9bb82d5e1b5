"""Everything that keeps relight off a login host, and how it comes back: each is a clear word, never an answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from activities.scheduler import ssh_connection
from activities.scheduler.login_host import LoginHost
from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.ssh import SshRunner
from activities.scheduler.ssh_connection import FIRST_PAUSE_S
from tests.slurm.cluster import free_ports
from tests.ssh.server import SshServer, ended, make_key, public

MakeRunner = Callable[..., SshRunner]


async def said_by(runner: SshRunner) -> str:
    with pytest.raises(SchedulerUnavailable) as unavailable:
        await runner.run("true")
    said = str(unavailable.value)
    assert "cluster alpha" in said
    assert "ssh" in said
    assert "\n" not in said
    return said


async def test_a_host_that_known_hosts_does_not_list_is_not_spoken_to(
    sshd: SshServer, runner: MakeRunner, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    said = await said_by(runner(known_hosts=tmp_path / "empty"))
    assert "is not in" in said
    assert "SHA256:" in said
    assert "ssh-keyscan" in said


async def test_a_host_with_another_key_than_known_hosts_says_is_not_spoken_to(
    sshd: SshServer, runner: MakeRunner, tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {public(tmp_path / 'other')}")
    here = runner(known_hosts=known)
    said = await said_by(here)
    assert "another machine may be answering" in said
    assert str(known) in said


async def test_a_corrected_known_hosts_file_counts_without_a_restart(
    sshd: SshServer, runner: MakeRunner, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    here = runner(known_hosts=known)
    assert f"{known} cannot be read" in await said_by(here)
    known.write_text(sshd.known_hosts.read_text())
    await asyncio.sleep(FIRST_PAUSE_S)
    assert (await here.run("echo", "in")).stdout == "in\n"


async def test_a_key_that_the_host_does_not_know_is_refused(runner: MakeRunner, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger")
    said = await said_by(runner(identity_files=(tmp_path / "stranger",)))
    assert "root's key was refused" in said
    assert "authorized_keys" in said


async def test_a_key_that_cannot_be_read_is_named(runner: MakeRunner, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_text("x")
    make_key(tmp_path / "locked", passphrase="secret")
    for name, why in (("none", "No such file"), ("garbage", "Invalid"), ("locked", "assphrase")):
        said = await said_by(runner(identity_files=(tmp_path / name,)))
        assert f"the identity file {tmp_path / name} cannot be read" in said
        assert why in said


async def test_without_identity_files_the_agent_is_asked(
    sshd: SshServer, runner: MakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "root's key was refused" in await said_by(runner(identity_files=()))
    with running_agent(sshd.open_key) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        assert (await runner(identity_files=()).run("echo", "in")).stdout == "in\n"


async def test_a_host_that_accepts_and_says_nothing_is_given_up_in_time(runner: MakeRunner) -> None:
    async with silent_host() as host:
        began = time.monotonic()
        said = await said_by(runner(hosts=(host,), connect_timeout_s=1))
        assert "no complete answer within 1 s" in said
        assert time.monotonic() - began < 10


async def test_a_host_that_speaks_something_else_is_no_answer(runner: MakeRunner) -> None:
    async with silent_host(greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2_000) as host:
        assert str(host) in await said_by(runner(hosts=(host,), connect_timeout_s=5))


async def test_a_dead_port_and_a_name_that_nobody_knows_are_said(runner: MakeRunner) -> None:
    nobody = LoginHost(host="127.0.0.1", port=free_ports(1)[0])
    nowhere = LoginHost(host="login.invalid")
    said = await said_by(runner(hosts=(nobody, nowhere)))
    assert f"{nobody}: " in said
    assert "; login.invalid: " in said


async def test_the_next_login_host_is_used_where_the_first_is_down(sshd: SshServer, runner: MakeRunner) -> None:
    down = LoginHost(host="127.0.0.1", port=free_ports(1)[0])
    here = runner(hosts=(down, sshd.host))
    assert (await here.run("echo", "in")).stdout == "in\n"


async def test_a_login_host_is_reached_through_a_jump_host_that_is_checked_too(
    sshd: SshServer, runner: MakeRunner, tmp_path: Path
) -> None:
    sshd.permit_forwarding()
    before = set(sshd.connections())
    here = runner(proxy_jump=sshd.host)
    assert (await here.run("echo", "in")).stdout == "in\n"
    assert len(set(sshd.connections()) - before) == 2
    await here.close()
    assert await ended(sshd, set(sshd.connections()) - before)

    (tmp_path / "empty").touch()
    said = await said_by(runner(proxy_jump=sshd.host, known_hosts=tmp_path / "empty"))
    assert f"the jump host {sshd.host}: it is not in" in said


async def test_a_connection_lost_in_mid_answer_is_no_answer_and_the_next_call_has_a_new_one(
    sshd: SshServer, runner: MakeRunner, tmp_path: Path
) -> None:
    here, half_said = runner(), tmp_path / "half_said"
    running = asyncio.create_task(here.run("sh", "-c", f"echo '{{\"jobs\": ['; touch {half_said}; exec sleep 20"))
    async with asyncio.timeout(30):
        while not half_said.exists():
            await asyncio.sleep(0.05)
    sshd.kill_connections()
    with pytest.raises(SchedulerUnavailable, match=r"cluster alpha over ssh: the connection .* sh"):
        await running
    assert (await here.run("echo", "back")).stdout == "back\n"


async def test_a_connection_that_was_lost_unseen_costs_no_call(sshd: SshServer, runner: MakeRunner) -> None:
    here = runner()
    for _ in range(3):
        assert (await here.run("echo", "in")).stdout == "in\n"
        sshd.kill_connections()


async def test_a_connection_that_stalls_is_given_up_for_a_new_one(sshd: SshServer, runner: MakeRunner) -> None:
    here = runner(timeout_s=4)
    await here.run("true")
    sshd.pause_connections()
    with pytest.raises(SchedulerUnavailable, match="did not answer within 4 s"):
        await here.run("true")
    assert (await here.run("echo", "back")).stdout == "back\n"
    sshd.kill_connections()


async def test_while_no_host_answers_each_call_is_told_at_once_and_hosts_are_asked_ever_more_rarely(
    sshd: SshServer, runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_pause_s = 2.0
    monkeypatch.setattr(ssh_connection, "FIRST_PAUSE_S", first_pause_s)
    here = runner()
    await here.run("true")
    sshd.stop()
    try:
        assert "asked again in" not in await said_by(here)
        assert "asked again in" in await said_by(here)
        await asyncio.sleep(first_pause_s)
        assert "asked again in" not in await said_by(here)
        await asyncio.sleep(first_pause_s)
        assert "asked again in" in await said_by(here)
    finally:
        sshd.start()
    await asyncio.sleep(first_pause_s)
    assert (await here.run("echo", "back")).stdout == "back\n"


@contextmanager
def running_agent(key: Path) -> Iterator[str]:
    """An ssh agent that holds `key`, as the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="relight-agent-") as directory:
        socket = f"{directory}/agent"
        with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as agent:
            try:
                deadline = time.monotonic() + 30
                while not Path(socket).exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                adding = ["ssh-add", "-q", str(key)]
                subprocess.run(adding, env={**os.environ, "SSH_AUTH_SOCK": socket}, check=True, timeout=30)
                yield socket
            finally:
                agent.terminate()


@asynccontextmanager
async def silent_host(greeting: bytes = b"") -> AsyncIterator[LoginHost]:
    """A listener that takes connections, says `greeting`, and nothing more."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield LoginHost(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
