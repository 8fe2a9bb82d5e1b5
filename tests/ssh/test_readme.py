"""What deploy/ssh/README.md tells an operator to do works as it stands there."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from activities.scheduler.cli import SlurmCli
from activities.scheduler.protocol import NotPermitted
from activities.scheduler.ssh import SshRunner
from tests.docs.blocks import REPOSITORY, blocks
from tests.ssh.server import FORCED_COMMAND, SshServer, public
from workers.scheduler_settings import SshScheduler
from workers.settings import load_settings

README = "deploy/ssh/README.md"
INSTALLED = "/usr/local/sbin/relight-forced-command"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)


async def test_an_operator_who_follows_it_gets_a_key_that_reads_and_changes_nothing(
    sshd: SshServer, runner: Callable[..., SshRunner], tmp_path: Path
) -> None:
    keys, install, line, by_hand = blocks(README, "")
    for command in keys.replace("/etc/relight", str(tmp_path)).splitlines():
        here = command.replace("login1.example.org login2.example.org", f"-p {sshd.port} 127.0.0.1")
        done = await asyncio.to_thread(shell, here)
        assert done.returncode == 0, done.stderr
    assert INSTALLED.startswith(install.split()[-1])

    public_key = public(tmp_path / "id_ed25519").strip()
    assert line.rstrip().endswith("ssh-ed25519 AAAA... relight")
    entry = line.replace(INSTALLED, shlex.join(FORCED_COMMAND)).replace("ssh-ed25519 AAAA... relight", public_key)
    (sshd.directory / "authorized_keys").write_text(entry)
    access = {"known_hosts": tmp_path / "known_hosts", "identity_files": (tmp_path / "id_ed25519",)}
    forced = runner(**access)
    assert (await forced.run("scontrol", "ping")).exit_code != 77
    with pytest.raises(NotPermitted, match="refused"):
        await SlurmCli(forced).release("7")

    told = by_hand.replace("/etc/relight", str(tmp_path)).replace("relight@login1.example.org", "root@127.0.0.1")
    asked = await asyncio.to_thread(shell, told.replace("ssh -i", f"ssh -p {sshd.port} -i"))
    assert asked.returncode not in (77, 255), asked.stderr


def test_its_settings_are_settings(tmp_path: Path) -> None:
    (shown,) = blocks(README, "yaml")
    (tmp_path / "relight.yaml").write_text(shown)
    scheduler = load_settings(tmp_path / "relight.yaml").clusters[0].scheduler
    assert isinstance(scheduler, SshScheduler)
    assert len(scheduler.hosts) == len(yaml.safe_load(shown)["clusters"][0]["scheduler"]["hosts"])


def test_it_explains_every_option_of_the_wrapper() -> None:
    told = subprocess.run([*FORCED_COMMAND, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    options = {word.strip(",") for word in told.split() if word.startswith("--")} - {"--help"}
    assert len(options) == 6
    text = (REPOSITORY / README).read_text()
    for option in options:
        assert f"| `{option}" in text
