"""Audit events on the local disk until PostgreSQL takes them: for a process that must not wait for any database.

One file for each event, named by its key and written as a whole: a repeated event is the same file, a crash leaves no
half of one, and several processes may use one directory. Delivery is idempotent, as `AuditTrail.record` is.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog
from pydantic import ValidationError

from recovery.audit import AuditEvent

MAX_EVENTS = 10_000
MAX_EVENT_BYTES = 65_536
WRITE_TIMEOUT_S = 5.0
"""A disk that hangs keeps nobody waiting for longer, and is then left alone for a while."""
LEFT_ALONE_S = 60.0
BATCH = 100
_SUFFIX = ".jsonl"

log = structlog.get_logger(__name__)


class Trail(Protocol):
    """What events are delivered to: `activities.audit.AuditTrail`."""

    async def record(self, events: Sequence[AuditEvent]) -> None:
        """Store `events`, all or none."""
        ...


class AuditSpool:
    """Events that wait in one directory, at most `max_events` of them."""

    def __init__(self, directory: Path, *, max_events: int = MAX_EVENTS) -> None:
        self._directory = directory
        self._max_events = max_events
        self._unwritten: dict[str, AuditEvent] = {}
        self._writing = asyncio.Lock()
        self._not_before_s = 0.0

    async def record(self, event: AuditEvent) -> None:
        """Put `event` on disk. Never raises: what the disk does not take in time stays in memory, up to `max_events`,
        and is tried again with the next one and at `write_again`."""
        self._unwritten[event.key] = event
        await self.write_again()

    async def write_again(self) -> None:
        """Try once more to write what the disk did not take."""
        async with self._writing:
            if time.monotonic() < self._not_before_s:
                return
            try:
                while self._unwritten:
                    event = next(iter(self._unwritten.values()))
                    async with asyncio.timeout(WRITE_TIMEOUT_S):
                        await asyncio.to_thread(self._write, event)
                    del self._unwritten[event.key]
            except TimeoutError:
                self._not_before_s = time.monotonic() + LEFT_ALONE_S
                self._keep(f"{self._directory} did not answer within {WRITE_TIMEOUT_S:g} s")
            except OSError as error:
                self._keep(str(error))

    def _keep(self, because: str) -> None:
        log.warning("audit events wait in memory", waiting=len(self._unwritten), because=because)
        while len(self._unwritten) > self._max_events:
            del self._unwritten[next(iter(self._unwritten))]

    def waiting(self) -> list[Path]:
        """Return the files of all events that are not delivered, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(self._directory.glob(f"*{_SUFFIX}"), key=_written_at)

    async def deliver(self, trail: Trail) -> int:
        """Hand all waiting events to `trail` and return how many it took. Raises what `trail` raises; what it has not
        taken then stays."""
        files, delivered = self.waiting(), 0
        for start in range(0, len(files), BATCH):
            batch = {file: event for file in files[start : start + BATCH] if (event := _read(file))}
            await trail.record(list(batch.values()))
            for file in batch:
                file.unlink(missing_ok=True)
            delivered += len(batch)
        return delivered

    def _write(self, event: AuditEvent) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / (hashlib.sha256(event.key.encode()).hexdigest()[:40] + _SUFFIX)
        if file.exists():
            return
        if sum(1 for _ in self._directory.glob(f"*{_SUFFIX}")) >= self._max_events:
            raise OSError(f"{self._directory} already holds {self._max_events} events; is audit.dsn right?")
        with tempfile.NamedTemporaryFile("w", dir=self._directory, delete=False, encoding="utf-8") as unfinished:
            unfinished.write(event.model_dump_json() + "\n")
            unfinished.flush()
            os.fsync(unfinished.fileno())
        Path(unfinished.name).replace(file)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # another process delivered it
        return 0.0


def _read(file: Path) -> AuditEvent | None:
    """Return the file's event; what is none is put aside, so that it keeps no other from being delivered."""
    try:
        with file.open("rb") as content:
            return AuditEvent.model_validate_json(content.read(MAX_EVENT_BYTES))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        log.warning("an audit event can't be read and is put aside", file=str(file), because=str(error)[:300])
        file.replace(file.with_suffix(".unreadable"))
        return None
