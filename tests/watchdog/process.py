"""`relight watchdog` as its users run it: a process and its settings."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

DEADLINE_S = 30
INTERVAL_S = 1
ACT = {
    "mode": "act",
    "acknowledge_scheduler_actions": True,
    "deadline_s": DEADLINE_S,
    "interval_s": INTERVAL_S,
}


def configure(directory: Path, scheduler: dict[str, str], watchdog: dict[str, Any], *, dsn: str = "") -> Path:
    """Write settings with nothing but a cluster and its watchdog; the worker's own mode is observe."""
    file = directory / "relight.yaml"
    cluster = {"name": "alpha", "scheduler": scheduler, "watchdog": watchdog}
    content = {"state_dir": "state", "audit": {"dsn": dsn}, "clusters": [cluster]}
    file.write_text(yaml.safe_dump(content))
    return file


def command(config: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "workers.cli", "--config", str(config), "watchdog", *words]


async def once(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``relight watchdog --once``."""
    return await asyncio.to_thread(
        subprocess.run, command(config, "--once", *words), capture_output=True, text=True, timeout=60
    )


@contextmanager
def running_watchdog(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, with its log beside the settings; ended in good order."""
    with (config.parent / "watchdog.log").open("ab") as log:
        process = subprocess.Popen(command(config), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
