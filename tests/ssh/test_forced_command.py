"""The forced command: it lets through what relight asks of Slurm, to the letter, and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler import sacct_table
from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import Finished
from activities.scheduler.protocol import NotPermitted, SchedulerError
from activities.scheduler.ssh import SshRunner
from tests.scheduler.conformance import AWKWARD_TEXT
from tests.ssh.server import FORCED_COMMAND, WRAPPER, SshServer

MakeRunner = Callable[..., SshRunner]


def wrapper() -> Any:
    loader = SourceFileLoader("relight_forced_command", str(WRAPPER))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


forced_command = wrapper()

READS = [
    "squeue --json --all --states=all",
    "squeue --json --all --states=all --jobs=7_1",
    "scontrol ping",
    "scontrol show config",
    "scontrol --oneliner --all show partition",
    "sacctmgr --noheader --parsable2 show user where name=relight format=User,AdminLevel",
    "sacctmgr --noheader --parsable2 show cluster format=Cluster,ControlHost",
]
ACTS = [
    "scontrol requeuehold 7",
    "scontrol requeue 7_1",
    "scontrol release 7",
    "scontrol update JobId=7 ExcNodeList=",
    "scontrol update JobId=7 ExcNodeList=node01,node-2.x AdminComment='two words'",
    "scontrol update JobId=7_1 StartTime=now",
    "scontrol update JobId=7 Requeue=1",
    "scancel --verbose 7",
]
SCRIPTS = [
    "scontrol write batch_script 7 -",
    "sacct --batch-script --jobs=7",
]
SUBMISSIONS = [
    "sbatch --parsable",
    "sbatch --parsable '--job-name=a b' --exclude=node01 --hold",
    "sbatch --parsable --uid=ana --gid=ml --ntasks=8 --gres=gpu:8 --no-requeue --get-user-env /dev/stdin --wrap 'a b'",
]
REFUSED = [
    "",
    "id",
    "bash -c id",
    "scontrol shutdown",
    "scontrol reconfigure",
    "scontrol update NodeName=node01 State=DOWN",
    "scontrol update JobId=7",
    "scontrol update JobId=7,8 Requeue=1",
    "scontrol update JobId=all Requeue=1",
    "scontrol update JobId=7 UserID=root",
    "scontrol update JobId=7 Requeue=1 Partition=other",
    "scontrol update JobId=7 ExcNodeList=node01;id",
    "scontrol update JobId=7 'ExcNodeList=node01 Partition=x'",
    "scontrol update JobId=7 StartTime=2030-01-01",
    "scontrol hold 7",
    "scontrol release all",
    "scontrol requeue 7 8",
    "scontrol -f /tmp/x requeue 7",
    "scontrol show config; id",
    "scontrol show config && id",
    "scontrol show config\nid",
    "scontrol show 'config\n'",
    "scontrol show $(id)",
    "scontrol show config extra",
    "scancel 7",
    "scancel --verbose --user=alice",
    "scancel --verbose 7 8",
    "scancel --verbose -u",
    "squeue --json",
    "squeue --json --all --states=all --jobs=7 --format=%all",
    "/tmp/squeue --json --all --states=all",
    "SLURM_CONF=/tmp/x squeue --json --all --states=all",
    "squeue '--json",
    "sinfo --Node --noheader --all --Format=x;id",
    *SCRIPTS,
    *SUBMISSIONS,
    "sbatch --wrap=id",
    "sbatch --parsable --wrap=id",
    "sbatch --parsable --uid=root /dev/stdin",
    "sbatch --parsable run.sh",
    "sacctmgr --noheader --parsable2 show user where name=relight format=User,AdminLevel -i",
    "sacctmgr add user eve",
    "srun id",
]


def is_allowed(asked: str | Sequence[str], *options: str) -> bool:
    """Whether a key with these options may have `asked` run."""
    words = shlex.split(asked) if isinstance(asked, str) else list(asked)
    chosen = {name: name in options for name in ("read_only", "scripts", "submit")}
    return bool(forced_command.is_allowed(words, **chosen))


@pytest.mark.parametrize("asked", READS)
def test_a_read_is_let_through_even_when_nothing_may_be_changed(asked: str) -> None:
    assert is_allowed(asked, "read_only")


@pytest.mark.parametrize("asked", ACTS)
def test_an_act_is_let_through_unless_nothing_may_be_changed(asked: str) -> None:
    assert is_allowed(asked)
    assert not is_allowed(asked, "read_only", "scripts", "submit")


@pytest.mark.parametrize("asked", SCRIPTS)
def test_a_script_is_let_through_only_where_it_is_asked_for(asked: str) -> None:
    assert is_allowed(asked, "scripts")
    assert is_allowed(asked, "scripts", "read_only")
    assert is_allowed(asked, "submit")
    assert not is_allowed(asked, "submit", "read_only")
    assert not is_allowed(asked)


@pytest.mark.parametrize("asked", SUBMISSIONS)
def test_a_submission_is_let_through_only_where_it_is_asked_for(asked: str) -> None:
    assert is_allowed(asked, "submit")
    assert not is_allowed(asked, "scripts")
    assert not is_allowed(asked, "read_only", "scripts", "submit")
    command, *options = shlex.split(asked)
    for more in ("--uid=root", "--wrap=id", "other.sh", "--export=ALL"):
        for there in (0, len(options)):
            words = [command, *options[:there], more, *options[there:]]
            in_arguments = there and forced_command.FROM_STDIN in options
            assert in_arguments or not is_allowed(words, "submit")


@pytest.mark.parametrize("asked", REFUSED)
def test_everything_else_is_refused_in_one_line(asked: str, tmp_path: Path) -> None:
    done = run(asked, tmp_path)
    assert done.returncode == 77
    assert done.stdout == ""
    assert done.stderr.startswith("relight-forced-command: refused: ")
    assert done.stderr.count("\n") == 1


async def test_all_that_relight_asks_of_slurm_is_let_through() -> None:
    asked: list[tuple[str, ...]] = []

    class Recording:
        async def run(self, *command: str, stdin: str = "") -> Finished:
            asked.append(command)
            return Finished(1, "", "no answer")

    scheduler = SlurmCli(Recording())
    for call in (
        scheduler.jobs(),
        scheduler.job("7_1"),
        scheduler.nodes(),
        scheduler.requeue_hold("7"),
        scheduler.requeue("7_1"),
        scheduler.constrain("7", exclude=("node01", "node-2.x"), admin_comment=AWKWARD_TEXT),
        scheduler.constrain("7", exclude=(), admin_comment="a\nb"),
        scheduler.release("7"),
        scheduler.start_now("7", admin_comment=AWKWARD_TEXT),
        scheduler.allow_requeue("7"),
        scheduler.cancel("7"),
    ):
        try:
            await call
        except SchedulerError:
            continue
    assert len(asked) == 11
    for command in asked:
        assert is_allowed(command), command


def test_accounting_is_let_through_as_it_is_asked_for() -> None:
    assert is_allowed(sacct_table.command("7_1"), "read_only")


NEARLY = st.lists(
    st.one_of(
        st.sampled_from(sorted({word for line in READS + ACTS + REFUSED for word in line.split()})),
        st.text(max_size=12),
    ),
    max_size=9,
)


@given(NEARLY)
def test_what_is_let_through_names_one_job_and_a_verb_of_relights(words: list[str]) -> None:
    if not is_allowed(words):
        return
    assert words[0] in ("squeue", "sinfo", "scontrol", "sacct", "sacctmgr", "scancel")
    if words[0] == "scontrol":
        assert {"requeue", "requeuehold", "release", "update", "show", "ping"} & set(words[1:5])
    if words[0] == "scancel":
        assert words[2].replace("_", "").isdigit()


def test_the_command_gets_its_words_as_they_were_and_an_environment_of_the_wrappers_own(tmp_path: Path) -> None:
    place(tmp_path / "scontrol", 'printf "%s\\0" "$@"; env -0')
    said = run(
        shlex.join(["scontrol", "update", "JobId=7", f"AdminComment={AWKWARD_TEXT}\n'$(id)'"]),
        tmp_path,
        "--slurm-conf",
        "/etc/slurm-alpha/slurm.conf",
        SQUEUE_FORMAT="%i",
        PYTHONPATH="/tmp",
        SLURM_CONF="/tmp/evil",
    ).stdout.split("\0")
    assert said[:3] == ["update", "JobId=7", f"AdminComment={AWKWARD_TEXT}\n'$(id)'"]
    assert {line.partition("=")[0] for line in said[3:] if line} - {"PWD", "OLDPWD", "SHLVL", "_"} == {
        "PATH",
        "LANG",
        "SLURM_TIME_FORMAT",
        "SLURM_CONF",
    }
    assert "SLURM_CONF=/etc/slurm-alpha/slurm.conf" in said


def test_a_command_that_never_ends_is_ended(tmp_path: Path) -> None:
    place(tmp_path / "scancel", "exec sleep 60")
    began = time.monotonic()
    assert run("scancel --verbose 7", tmp_path, "--limit-s", "1").returncode == -14
    assert time.monotonic() - began < 30


def test_it_needs_no_newer_python_than_old_login_hosts_have() -> None:
    ast.parse(WRAPPER.read_text(), feature_version=(3, 6))


async def test_over_ssh_a_refusal_is_told_as_one(sshd: SshServer, runner: MakeRunner) -> None:
    forced = runner(identity_files=(sshd.key,))
    with pytest.raises(NotPermitted, match=r"cluster alpha over ssh: the forced command .* refused touch") as refused:
        await forced.run("touch", str(sshd.directory / "broken_out"))
    assert "\n" not in str(refused.value)
    assert not (sshd.directory / "broken_out").exists()


async def test_over_ssh_a_key_for_reading_changes_nothing(sshd: SshServer, runner: MakeRunner) -> None:
    sshd.allow("--read-only")
    scheduler = SlurmCli(runner(identity_files=(sshd.key,)))
    for verb in (scheduler.release("7"), scheduler.cancel("7"), scheduler.constrain("7", admin_comment="x")):
        with pytest.raises(NotPermitted, match="refused"):
            await verb


def run(asked: str, commands: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FORCED_COMMAND, "--bin", str(commands), *options],
        env={"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": asked, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def place(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
