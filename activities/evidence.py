"""What an attempt showed just before it was killed: the end of its output, and the stacks of its processes.

It goes into one file, because a requeue truncates the output unless the job has ``--open-mode=append``, and stacks are
gone with the process. Nothing here ever keeps the kill waiting for longer than its bounds, and what can't be had is a
note in that file and not an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from temporalio import activity

from activities.evidence_settings import EvidenceSettings
from activities.logs.protocol import LogCursor, LogSource
from activities.scheduler.protocol import JobRecord, JobState, Scheduler, SchedulerError
from activities.scheduler.stacks import ShowsStacks
from recovery.model import Advice, Value
from recovery.redaction import redact

TAIL_BYTES = 65_536
"""Of each source of the job's output."""
MAX_SOURCES = 4
MAX_STACKS_CHARS = 262_144
MAX_EXCERPT_BYTES = 6_000
"""Of output and of stacks each, as JSON: what goes on record beside the file, which may be lost with its host."""
KEPT_FILES = 1_000
"""Of one cluster; beyond that the oldest go."""
READ_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 5.0


class EvidenceOrder(Value):
    """Which attempt is about to be killed, and by which advice."""

    advice: Advice
    began: tuple[LogCursor, ...] = ()
    """Where the attempt's output begins."""


class KeptEvidence(Value):
    """What was kept, and where."""

    summary: str
    """One sentence for a person."""
    file: str = ""
    """Path on `host`; empty where nothing could be written."""
    host: str = ""
    output: str = ""
    """The very end of the attempt's output, redacted; all of `file` holds more."""
    stacks: str = ""
    """The first of its stacks, redacted."""
    kept_at: datetime


class EvidenceKeeper:
    """Keeps evidence of one cluster's jobs, as a Temporal activity."""

    def __init__(self, scheduler: Scheduler, logs: LogSource, settings: EvidenceSettings, directory: Path) -> None:
        """`directory`: where the files go, one for each kill."""
        self._scheduler = scheduler
        self._logs = logs
        self._settings = settings
        self._directory = directory.absolute()

    @activity.defn
    async def keep_evidence(self, order: EvidenceOrder) -> KeptEvidence:
        """Copy what the attempt shows now. Repeated, it replaces what it kept before."""
        advice = order.advice
        try:
            record = await self._scheduler.job(advice.job.job_id)
        except SchedulerError as error:
            return _nothing(f"the job could not be read: {error}")
        if record.restart_count != advice.attempt:
            return _nothing("the next attempt is there already")
        output, stacks = await asyncio.gather(self._output(order, record), self._stacks(advice, record))
        file, trouble = await self._write(advice, f"{output}\n\n{stacks}\n")
        asked = self._settings.stacks and record.state is JobState.RUNNING
        kept = f"the end of its output{' and its stacks' if asked else ''}"
        return KeptEvidence(
            summary=f"kept {kept} in {file}" if file else f"{kept} could not be written: {trouble}"[:300],
            file=file,
            host=socket.gethostname(),
            output=_excerpt(output, end=True),
            stacks=_excerpt(stacks, end=False) if asked else "",
            kept_at=datetime.now(UTC),
        )

    async def _output(self, order: EvidenceOrder, record: JobRecord) -> str:
        began = {cursor.source: cursor for cursor in order.began}
        sources = self._logs.sources(record)[:MAX_SOURCES]
        tails = [f"== {source} ==\n{await self._tail(source, began.get(source))}" for source in sources]
        return "\n\n".join(tails) or "== the job names no output file =="

    async def _tail(self, source: str, began: LogCursor | None) -> str:
        """Return the end of a source, no more than what the attempt wrote."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                start = await self._logs.end(source, TAIL_BYTES)
                if began is not None and began.store is None and began.offset > start.offset:
                    start = began
                stretch = await self._logs.read_range(start, TAIL_BYTES)
        except TimeoutError:
            return f"({source} did not answer within {READ_TIMEOUT_S:g} s)"
        text = "\n".join(line.text for line in stretch.lines)
        return redact(text) or f"(nothing: {stretch.detail or stretch.state.value})"

    async def _stacks(self, advice: Advice, record: JobRecord) -> str:
        """Ask the processes, those on the culprits first, for their number is bounded."""
        if not self._settings.stacks:
            return "== stacks: not asked for (evidence: {stacks: true} in relight.yaml) =="
        if record.state is not JobState.RUNNING:
            return f"== stacks: the attempt is {record.state.value} =="
        if not isinstance(self._scheduler, ShowsStacks):
            return "== stacks: this transport starts no job steps =="
        try:
            culprits = [node for node in advice.exclude if node in record.nodes]
            nodes = tuple(dict.fromkeys((*culprits, *record.nodes)))
            said = await self._scheduler.stacks(record, nodes, self._settings)
        except SchedulerError as error:
            return f"== stacks: {redact(str(error))} =="
        return f"== stacks ==\n{redact(said[:MAX_STACKS_CHARS])}"

    async def _write(self, advice: Advice, text: str) -> tuple[str, str]:
        """Return the file's path, or why there is none."""
        file = self._directory / advice.job.job_id / f"attempt-{advice.attempt}.{advice.generation}.txt"
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await asyncio.to_thread(_replace, file, text, self._directory)
        except (OSError, TimeoutError) as error:
            activity.logger.warning("evidence of job %s is lost: %s", advice.job, error)
            return "", str(error) or f"{self._directory} did not answer within {WRITE_TIMEOUT_S:g} s"
        return str(file), ""


def _nothing(because: str) -> KeptEvidence:
    return KeptEvidence(summary=f"no evidence kept: {because}"[:300], kept_at=datetime.now(UTC))


def _excerpt(text: str, *, end: bool) -> str:
    """Return as much of one end of `text` as `MAX_EXCERPT_BYTES` of JSON hold."""
    text = text[-MAX_EXCERPT_BYTES:] if end else text[:MAX_EXCERPT_BYTES]
    while (excess := len(json.dumps(text)) - MAX_EXCERPT_BYTES) > 0:
        cut = -(-excess // len(r"\ud83d\udd25"))
        text = text[cut:] if end else text[:-cut]
    return text


def _replace(file: Path, text: str, directory: Path) -> None:
    """Write the file as a whole, for its owner's eyes only, and let the oldest of all go where they are too many."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8", errors="replace") as new:
        new.write(text)
    os.replace(new.name, file)  # noqa: PTH105 - both are on one file system
    files = sorted(directory.glob("*/attempt-*.txt"), key=lambda kept: kept.stat().st_mtime, reverse=True)
    for old in files[KEPT_FILES:]:
        old.unlink(missing_ok=True)
