"""The command itself: its exit code, its output, and a probe through a real cluster into a file and a store."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks, commands
from tests.doctor.logs_site import WELL, sent
from tests.slurm.accounting import AccountedCluster
from tests.stores.collector import collecting
from tests.stores.servers import CLUSTER, RunningStore, free_port, running_store
from workers.cli.main import run_command
from workers.settings import load_settings

pytestmark = pytest.mark.timeout(240)


def settings(directory: Path, *logs: dict[str, Any], **scheduler: object) -> str:
    """Write settings and return their path."""
    chosen = scheduler or {"kind": "simulated", "socket": str(directory / "nobody.sock")}
    config = directory / "relight.yaml"
    config.write_text(json.dumps({"clusters": [{"name": CLUSTER, "scheduler": chosen, "logs": logs}]}))
    return str(config)


@contextmanager
def collected(store: RunningStore, directory: Path) -> Iterator[None]:
    """A collector of the first job that writes to `directory`, while the context is open."""
    ended = threading.Event()

    async def collect() -> None:
        while not ended.is_set():
            if logs := sorted(directory.glob("slurm-*.out")):
                job_id = logs[0].stem.removeprefix("slurm-")
                async with collecting(store, job_id, logs[0], ["relight01"], cluster=CLUSTER):
                    await asyncio.to_thread(ended.wait)
            await asyncio.sleep(0.2)

    collector = threading.Thread(target=asyncio.run, args=[collect()])
    collector.start()
    try:
        yield
    finally:
        ended.set()
        collector.join()


@pytest.mark.slurm
def test_a_probe_finds_its_line_in_the_file_and_in_the_store_and_leaves_no_job(
    accounted: AccountedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.doctor.logs_probe.SKEW_S", 60.0)
    with running_store("loki", "--max-entries", "5000") as store, collected(store, tmp_path):
        asyncio.run(sent(store, "", WELL))
        config = settings(
            tmp_path,
            {"kind": "files"},
            store.settings(late_s=600).model_dump(mode="json"),
            kind="cli",
            slurm_conf=str(accounted.conf),
        )
        code = run_command(["--config", config, "doctor", "logs", "--probe", "--directory", str(tmp_path), "--json"])
    said = capsys.readouterr()
    checks = {check["name"]: check for check in json.loads(said.out)["clusters"][CLUSTER]}

    assert {name: check for name, check in checks.items() if check["finding"] == "failed"} == {}
    assert code == 0
    found = {"probe: start", "files: probe: output", "loki: probe: labels", "loki: probe: length", "loki: probe: time"}
    assert {checks[name]["finding"] for name in found} == {"ok"}
    job_id = checks["probe: start"]["says"].split()[1]
    assert f"slurm_job_id={job_id}" in checks["loki: probe: labels"]["says"]
    assert accounted.field(job_id, "JobState") == "CANCELLED"
    assert said.err.startswith("waiting up to 60 s for a job's line with probe_")


def test_the_command_fails_when_a_check_does_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    config = settings(tmp_path, {"kind": "loki", "url": f"http://127.0.0.1:{free_port()}"})

    code = run_command(["--config", config, "doctor", "logs"])

    title, heading, *lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert title == "cluster alpha, logs in loki"
    assert heading.split() == ["CHECK", "FINDING", "WHAT"]
    assert lines[0].split()[:3] == ["running", "jobs", "unknown"]
    at = next(number for number, line in enumerate(lines) if line.startswith("loki: reach"))
    assert lines[at + 1].strip().split(maxsplit=2) == ["to", "do", "check `url` and that the store runs"]


def test_a_line_that_the_operator_prints_is_looked_for_in_every_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_store("loki", "--max-entries", "5000") as store:
        asyncio.run(sent(store, "", WELL, "hello from hello_relight_1"))
        config = settings(tmp_path, store.settings().model_dump(mode="json"))
        code = run_command(["--config", config, "doctor", "logs", "--line", "hello_relight_1", "--json"])
    checks = {check["name"]: check["finding"] for check in json.loads(capsys.readouterr().out)["clusters"][CLUSTER]}
    assert code == 0
    assert checks["loki: probe: labels"] == "ok"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--line", "a b c d e f g"], "letters, digits and underscores"),
        (["--line", "short"], "8 to 64"),
        (["--probe", "--line", "hello_relight_1"], "one of them"),
        (["--cluster", "beta"], "configured: alpha"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command(["--config", settings(tmp_path, {"kind": "files"}), "doctor", "logs", *options])
    assert code == 1
    assert words in capsys.readouterr().err


def test_the_settings_and_the_commands_of_the_document_are_those_that_are_tested(tmp_path: Path) -> None:
    (tmp_path / "relight.yaml").write_text(blocks("docs/log-stores.md", "yaml")[0])
    assert load_settings(tmp_path / "relight.yaml").clusters[0].logs[0].called == "loki"
    assert commands("docs/log-stores.md") == ["relight doctor logs", "relight doctor logs --probe"]
