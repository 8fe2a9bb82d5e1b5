"""`relight up`: everything in one process, kept across restarts."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.embedded.places import open_directory
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(150)]


def write_config(directory: Path, simulator: RunningSimulator) -> Path:
    config = directory / "relight.yaml"
    scheduler = {"kind": "simulated", "socket": str(simulator.socket)}
    content = {
        "state_dir": "state",
        "embedded": {"temporal_port": 0, "temporal_ui_port": 0},
        "clusters": [{"name": "alpha", "scheduler": scheduler, "poll_interval_s": 0.5}],
    }
    config.write_text(yaml.safe_dump(content))
    return config


def relight(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workers.cli", "--config", str(config), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


class Up:
    """A running ``relight up``."""

    def __init__(self, config: Path) -> None:
        self._log = config.with_suffix(".log")
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "workers.cli", "--config", str(config), "up"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    async def ready(self, times: int) -> None:
        deadline = time.monotonic() + 60
        while self._log.read_text().count("Ctrl-C ends it") < times:
            assert time.monotonic() < deadline, self._log.read_text()
            assert self.process.poll() is None, self._log.read_text()
            await asyncio.sleep(0.1)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


async def shown(config: Path, job_id: str) -> dict[str, object]:
    deadline = time.monotonic() + 30
    while True:
        said = await asyncio.to_thread(relight, config, "show", job_id, "--json")
        if said.returncode == 0:
            state: dict[str, object] = json.loads(said.stdout)
            return state
        assert time.monotonic() < deadline, said.stderr
        await asyncio.sleep(0.3)


async def test_up_keeps_what_it_knows_across_a_restart(own_simulator: RunningSimulator) -> None:
    with open_directory() as directory:
        config = write_config(directory, own_simulator)
        up = Up(config)
        try:
            await up.ready(1)
            job_id = await submit(own_simulator, "kept", comment={"relight": {}})
            before = await shown(config, job_id)
            second = await asyncio.to_thread(relight, config, "up")
            assert second.returncode == 1
            assert "already runs its servers" in second.stderr
        finally:
            ended = await asyncio.to_thread(up.interrupt)
        assert ended == 0
        offline = await asyncio.to_thread(relight, config, "status")
        assert offline.returncode == 1
        assert offline.stderr.startswith("error: Temporal does not answer")

        up = Up(config)
        try:
            await up.ready(2)
            after = await shown(config, job_id)
        finally:
            await asyncio.to_thread(up.interrupt)
        known = before["timeline"]
        assert after["timeline"][: len(known)] == known, "the job goes on, and more may be told of it"
