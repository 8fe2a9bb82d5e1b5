"""One `relight up` per state directory: a second one would lose its servers when the first one ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.embedded.server import EmbeddedServerError, make_directory


@contextmanager
def owned(state_dir: Path) -> Iterator[Path]:
    """Make `state_dir` if needed and keep it for this process, and for no longer than it lives.

    Raises `EmbeddedServerError` when another process has it.
    """
    make_directory(state_dir)
    # Not inherited by the servers, which outlive a killed owner and are adopted by the next one.
    lock = os.open(state_dir / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.read(lock, 32).decode(errors="replace").strip()
            raise EmbeddedServerError(
                f"another relight (pid {pid}) already runs its servers in {state_dir}",
                "stop that one, or set another state_dir",
            ) from error
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        yield state_dir
    finally:
        os.close(lock)
