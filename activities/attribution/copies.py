"""An attempt's output as a file that a service can read: its own lines, no other attempt's, and no secrets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from activities.attribution.protocol import Question
from recovery.redaction import redact

KEPT_S = 86_400.0
"""A copy that a dead worker left is removed after so long."""
SUFFIX = ".relight.log"
COPY_MODE = 0o640
"""For us, and for the group that the service is in."""


@asynccontextmanager
async def copied(question: Question, directory: Path) -> AsyncIterator[Path]:
    """Write the output of the attempt in `question` to a file of its own in `directory`, and remove it at the end.

    Raises `OSError` where that can't be done.
    """
    submitted = int(question.job.submitted_at.timestamp())
    name = f"{question.job.cluster}-{question.job.job_id}-{submitted}-{question.attempt}{SUFFIX}"
    path = directory / name
    await asyncio.to_thread(_write, path, question)
    try:
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _write(path: Path, question: Question) -> None:
    _remove_old(path.parent)
    if path.exists():
        return
    unfinished = path.with_name(f"{os.getpid()}-{path.name}")
    unfinished.touch(mode=COPY_MODE)
    with unfinished.open("w", encoding="utf-8", errors="replace") as file:
        for line in question.lines:
            rank = "" if line.rank is None else f"{line.rank}: "
            file.write(f"{rank}{redact(line.text)}\n")
    unfinished.replace(path)


def _remove_old(directory: Path) -> None:
    before_s = time.time() - KEPT_S
    for old in directory.glob(f"*{SUFFIX}"):
        if old.stat().st_mtime < before_s:
            old.unlink(missing_ok=True)
