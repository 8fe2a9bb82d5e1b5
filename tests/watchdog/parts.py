"""Held jobs, marks and places for events as these tests need them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from activities.scheduler.lineage import KEY, Lineage
from activities.scheduler.marker import Marker, write_marker
from activities.scheduler.protocol import Hold, JobRecord, JobState
from recovery.audit import AuditEvent, AuditKind
from tests.protocol.parts import START, a_record, an_advice

DEADLINE = timedelta(seconds=60)
SENT_AT = START + timedelta(seconds=10)


def our_mark(*, since: datetime = START, **advice: Any) -> str:
    """The admin comment of a job that relight holds."""
    return write_marker("", Marker(holds=an_advice(**advice).key, since=since, why="a GPU is gone"))


def a_held_job(**changes: Any) -> JobRecord:
    """Job 1, requeued and held by us at `START`, its attempt 0 over."""
    standard: dict[str, Any] = {
        "state": JobState.PENDING,
        "hold": Hold.REQUEUED,
        "restart_count": 1,
        "admin_comment": our_mark(),
    }
    return a_record(**(standard | changes))


@dataclass
class Recorded:
    """Keeps the watchdog's events, and may do something at one of them."""

    events: list[AuditEvent] = field(default_factory=list)
    at: dict[AuditKind, Callable[[], None]] = field(default_factory=dict)

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)
        if event.kind in self.at:
            self.at[event.kind]()

    @property
    def kinds(self) -> list[AuditKind]:
        return [event.kind for event in self.events]


def a_lineage(**changes: Any) -> Lineage:
    """Of the first job that was sent in place of job 1, which had ended, 10 s after `START`."""
    standard: dict[str, Any] = {
        "order": an_advice().key,
        "of": "1",
        "count": 1,
        "since": SENT_AT,
        "first": True,
        "old_is_over": True,
    }
    return Lineage(**(standard | changes))


def a_new_job(job_id: str = "7", *, lineage: Lineage | None = None, **changes: Any) -> JobRecord:
    """Job 7 as it was submitted in place of job 1: held, one second after it was sent."""
    standard: dict[str, Any] = {
        "job_id": job_id,
        "user": "ana",
        "state": JobState.PENDING,
        "hold": Hold.USER,
        "comment": json.dumps({KEY: (lineage or a_lineage()).model_dump(mode="json")}),
        "submitted_at": SENT_AT + timedelta(seconds=1),
    }
    return a_record(**(standard | changes))


def an_old_job(**changes: Any) -> JobRecord:
    """Job 1, which has failed."""
    return a_record(**({"state": JobState.FAILED, "user": "ana", "requeueable": False} | changes))
