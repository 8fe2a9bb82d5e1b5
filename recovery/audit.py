"""What is put on record of every observation, decision and act: one event, built by a workflow, stored for good."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum

from pydantic import Field, JsonValue, field_validator

from recovery.model import Advice, JobKey, Mode, Reconciliation, Symptom, Value, Verdict

MAX_SUMMARY_CHARS = 500
MAX_DETAILS_BYTES = 16_384


class AuditKind(StrEnum):
    """What an event tells of."""

    ADOPTED = "adopted"
    """relight began to look after the job."""
    WARNED = "warned"
    """Something was not as it should be, such as an unreadable opt-in; said once."""
    DETECTED = "detected"
    ATTRIBUTED = "attributed"
    OPINION = "opinion"
    """What a service of the site says, or why it says nothing, and what comes of it."""
    ADVISED = "advised"
    APPROVED = "approved"
    REJECTED = "rejected"
    KEPT_BACK = "kept_back"
    """The governor keeps an advice back for now, or lets it go on."""
    ORDERED = "ordered"
    """About to touch the scheduler: on record before the act."""
    EVIDENCE = "evidence"
    """What an attempt showed just before it was killed, and where that is kept."""
    ACTED = "acted"
    RECONCILED = "reconciled"
    """What a fresh look at the scheduler showed."""
    MILESTONE = "milestone"
    OVERRIDE = "override"
    """A person intervened: restart now, stop, exclude, readmit, pause, resume."""
    MODE = "mode"
    BLIND = "blind"
    """A source went silent, or speaks again."""
    CLOSED = "closed"
    """relight no longer looks after the job."""


class AuditEvent(Value):
    """One line of the audit trail. `key` makes it idempotent: the first event stored under a key is the one kept."""

    key: str = Field(min_length=1, max_length=400)
    """Unique for ever and the same at every repetition: workflow id, submit time, and a number that counts up."""
    at: datetime
    """When it happened, by the clock of the workflow that says so."""
    job: JobKey
    attempt: int = Field(ge=0)
    kind: AuditKind
    who: str = Field(max_length=200)
    """``policy``, ``watchdog``, or a person's name."""
    summary: str
    """One sentence for a person; cut at 500 characters."""
    mode: Mode
    """The mode in force for the job at that moment."""
    symptom: Symptom | None = None
    verdict: Verdict | None = None
    advice: Advice | None = None
    reconciliation: Reconciliation | None = None
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """What has no field of its own, up to 16 KiB of JSON."""

    @field_validator("summary")
    @classmethod
    def _one_sentence(cls, summary: str) -> str:
        return summary if len(summary) <= MAX_SUMMARY_CHARS else f"{summary[: MAX_SUMMARY_CHARS - 1]}…"

    @field_validator("details")
    @classmethod
    def _bounded(cls, details: dict[str, JsonValue]) -> dict[str, JsonValue]:
        size = len(json.dumps(details, allow_nan=False).encode())
        if size > MAX_DETAILS_BYTES:
            raise ValueError(f"details of an audit event take {size} bytes of JSON, more than {MAX_DETAILS_BYTES}")
        return details
