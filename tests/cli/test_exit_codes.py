"""How commands end: the exit code, and what is said about it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import workers.demo.run
from workers.cli import main
from workers.demo.outcome import Check, DemoReport


def relight(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workers.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize(("met", "code"), [(True, 0), (False, 1)])
def test_the_demonstration_ends_with_1_when_a_job_did_not_end_as_it_should(
    monkeypatch: pytest.MonkeyPatch, met: bool, code: int
) -> None:
    async def told(*_: object, **__: object) -> DemoReport:
        return DemoReport(checks=(Check(job="a", expected="b", met=met),), jobs=(), elapsed_s=1, ui_url="")

    monkeypatch.setattr(workers.demo.run, "run_demo", told)
    assert main.run_command(["demo"]) == code


def test_without_a_command_help_is_printed() -> None:
    said = relight()
    assert said.returncode == 0
    assert said.stdout.startswith("Usage: relight")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["show"], "Missing argument 'job'."),
        (["status", "--config", "x.yaml"], "No such option: --config"),
    ],
    ids=["command", "argument", "option"],
)
def test_a_wrong_call_is_one_line_and_a_hint(words: list[str], message: str) -> None:
    said = relight(*words)
    assert said.returncode == 2
    assert said.stdout == ""
    lines = said.stderr.splitlines()
    assert lines[0] == f"error: {message}"
    assert lines[1].startswith("hint:")


def test_a_wrong_setting_is_named_with_the_nearest_right_one(tmp_path: Path) -> None:
    config = tmp_path / "relight.yaml"
    config.write_text("clusters: [{name: a, poll_intervall_s: 3}]\n")
    said = relight("--config", str(config), "status")
    assert said.returncode == 1
    assert "poll_intervall_s" in said.stderr
    assert "poll_interval_s" in said.stderr
    assert "Traceback" not in said.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    said = relight("--debug", "--config", str(tmp_path / "missing.yaml"), "status")
    assert said.returncode != 0
    assert "Traceback" in said.stderr


@pytest.mark.temporal
@pytest.mark.postgres
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_ends_the_demonstration_cleanly(tmp_path: Path, how: signal.Signals, code: int) -> None:
    deep = tmp_path / ("deeper-than-the-path-of-a-socket-may-be-" * 3)
    deep.mkdir()
    command = [sys.executable, "-m", "workers.cli", "demo", "--dir", str(deep / "demo")]
    demo = subprocess.Popen(
        command,
        cwd=deep,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if "adopted" in line:
            break
    demo.send_signal(how)
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == code, "".join(said) + rest
    assert "Traceback" not in rest
    deadline = time.monotonic() + 10
    while left := processes_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def processes_in(directory: Path) -> list[str]:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    return [line.decode(errors="replace") for line in lines if str(directory).encode() in line]


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
