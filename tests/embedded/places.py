"""Directories for embedded servers in tests."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path


def end_in_good_order_at_sigterm() -> None:
    """Let SIGTERM cancel the task that runs: servers and disks must not outlive it."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that other accounts may pass through, as root's PostgreSQL must; pytest's own are closed to them."""
    directory = Path(tempfile.mkdtemp(prefix="relight-test-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
