"""What the simulated cluster writes down of every call that changes something, as slurmctld does in its log.

One JSON object a line in ``journal.jsonl`` of the state directory, written when the call took effect or was refused: by
then its caller may be long gone. Whoever wants to know what really happened reads it here and not from a caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from activities.scheduler.protocol import JobRecord
from activities.scheduler.simulated_wire import ErrorKind, Request
from recovery.model import Value

JOURNAL = "journal.jsonl"


class JournalLine(Value):
    """One call and what it led to."""

    received_at: datetime
    at: datetime
    """When it took effect or was refused."""
    request: Annotated[Request, Field(discriminator="verb")]
    error: ErrorKind
    jobs: tuple[JobRecord, ...] = ()
    """The jobs that it was about, as they were right after it."""


class Journal:
    """The file of one cluster."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL

    def note(self, line: JournalLine) -> None:
        """Append `line`."""
        with self._path.open("a") as file:
            file.write(line.model_dump_json() + "\n")

    @property
    def size_bytes(self) -> int:
        """How long it is now."""
        return self._path.stat().st_size if self._path.exists() else 0

    def cut(self, size_bytes: int) -> None:
        """Drop what was written after it was `size_bytes` long."""
        if self.size_bytes > size_bytes:
            os.truncate(self._path, size_bytes)


def read_journal(directory: Path) -> Iterable[JournalLine]:
    """Yield the lines in the order in which the calls took effect."""
    with (directory / JOURNAL).open() as file:
        for line in file:
            yield JournalLine.model_validate_json(line)
