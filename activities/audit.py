"""The audit trail in PostgreSQL: append-only, idempotent, read in pages. Speaks SQL and nothing else.

When PostgreSQL is away, `AuditActivities.record_audit` fails with a retryable error of type ``AuditUnavailable``: the
events stay in Temporal and arrive later.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg
from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from recovery.audit import AuditEvent
from recovery.model import JobId, Value

if TYPE_CHECKING:
    from asyncpg.pool import Pool

CONNECT_TIMEOUT_S = 3.0
COMMAND_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 4
MAX_PAGE = 1_000
MAX_ERROR_CHARS = 300

_EXISTS = "SELECT to_regclass('relight.audit_event') IS NOT NULL"
# Two workers may start at once on an empty database, and CREATE ... IF NOT EXISTS is not safe against that.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('relight.audit_event'))"
_INSERT = """
INSERT INTO relight.audit_event
    (key, at, workflow_id, cluster, job_id, submitted_at, attempt, kind, who, mode, summary, event)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::jsonb)
ON CONFLICT (key) DO NOTHING
"""
_EVENTS_OF_JOB = """
SELECT event FROM relight.audit_event
WHERE cluster = $1 AND job_id = $2 AND ($3::timestamptz IS NULL OR (at, key) > ($3, $4))
ORDER BY at, key LIMIT $5
"""
_EVENTS = """
SELECT event FROM relight.audit_event
WHERE ($1::timestamptz IS NULL OR (at, key) > ($1, $2))
ORDER BY at, key LIMIT $3
"""


class AuditUnavailable(Exception):
    """PostgreSQL did not take or give the events. Nothing is lost by trying again: every write is idempotent."""


class AuditCursor(Value):
    """Where the next page begins: just after this event."""

    at: datetime
    key: str


class AuditPage(Value):
    """Events in the order in which they happened."""

    events: tuple[AuditEvent, ...]
    next: AuditCursor | None
    """None when these are the last ones."""


class AuditTrail:
    """The trail in one PostgreSQL database. Connects at first use, and again whenever the server comes back.

    Every method raises `AuditUnavailable` when PostgreSQL does not do its part.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._pool: Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    async def record(self, events: Sequence[AuditEvent]) -> None:
        """Store `events`, all or none. One whose key is there already is left as it was first told."""
        rows = [_row(event) for event in events]
        try:
            pool = await self._connected()
            await pool.executemany(_INSERT, rows)  # asyncpg runs it as one transaction
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise _unavailable("take", error) from error

    async def events_of_job(
        self, cluster: str, job_id: JobId, *, after: AuditCursor | None = None, limit: int = 200
    ) -> AuditPage:
        """Return the next `limit` events of one job id, all submissions of it included."""
        at, key = (after.at, after.key) if after else (None, "")
        return await self._page(_EVENTS_OF_JOB, cluster, job_id, at, key, limit=limit)

    async def events(self, *, after: AuditCursor | None = None, limit: int = 200) -> AuditPage:
        """Return the next `limit` events of all jobs."""
        at, key = (after.at, after.key) if after else (None, "")
        return await self._page(_EVENTS, at, key, limit=limit)

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def _page(self, query: str, *arguments: object, limit: int) -> AuditPage:
        limit = max(1, min(limit, MAX_PAGE))
        try:
            pool = await self._connected()
            rows = await pool.fetch(query, *arguments, limit + 1)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise _unavailable("give", error) from error
        events = tuple(AuditEvent.model_validate_json(row["event"]) for row in rows[:limit])
        last = events[-1] if len(rows) > limit else None
        return AuditPage(events=events, next=AuditCursor(at=last.at, key=last.key) if last else None)

    async def _connected(self) -> Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=MAX_CONNECTIONS,
                    timeout=CONNECT_TIMEOUT_S,
                    command_timeout=COMMAND_TIMEOUT_S,
                )
                try:
                    await _create_if_needed(pool)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool = pool
            return self._pool


class AuditActivities:
    """The activity that workflows call. Without a trail the events are dropped: the workflow's history has them."""

    def __init__(self, trail: AuditTrail | None) -> None:
        self._trail = trail

    @activity.defn
    async def record_audit(self, events: list[AuditEvent]) -> None:
        """Store `events`. Retryable ``AuditUnavailable`` while PostgreSQL is away."""
        if self._trail is None:
            return
        try:
            await self._trail.record(events)
        except AuditUnavailable as error:
            raise ApplicationError(str(error), type="AuditUnavailable") from error


async def _create_if_needed(pool: Pool[asyncpg.Record]) -> None:
    """A site may have made the table itself and given us no right to make one: look before creating."""
    async with pool.acquire(timeout=CONNECT_TIMEOUT_S) as connection:
        if await connection.fetchval(_EXISTS):
            return
        async with connection.transaction():
            await connection.execute(_LOCK)
            await connection.execute(importlib.resources.files("activities").joinpath("audit.sql").read_text())


def _row(event: AuditEvent) -> tuple[object, ...]:
    return (
        _storable(event.key),
        event.at,
        event.job.workflow_id,
        _storable(event.job.cluster),
        event.job.job_id,
        event.job.submitted_at,
        event.attempt,
        event.kind.value,
        _storable(event.who),
        event.mode.value,
        _storable(event.summary),
        json.dumps(_storable_json(event.model_dump(mode="json"))),
    )


def _storable(text: str) -> str:
    """PostgreSQL's text holds every character but NUL, and no half of a surrogate pair."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _storable_json(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, list):
        return [_storable_json(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable_json(item) for key, item in value.items()}
    return value


def _unavailable(verb: str, error: Exception) -> AuditUnavailable:
    said = str(error)[:MAX_ERROR_CHARS] or type(error).__name__
    return AuditUnavailable(f"PostgreSQL did not {verb} the audit events: {said}")
