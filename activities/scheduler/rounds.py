"""What one look of the watchdog at a cluster saw and did."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from recovery.model import Mode, Value


class Outcome(StrEnum):
    """What became of a job that waits because of us, or carries our mark."""

    LEFT = "left"
    WOULD_RELEASE = "would_release"
    RELEASED = "released"
    FAILED = "failed"
    """Still held, or not known: the next round tries again."""


class Seen(Value):
    """Such a job, and what was done about it."""

    cluster: str
    job_id: str
    outcome: Outcome
    reason: str
    advice: str = ""
    held_for_s: float | None = None
    """None where the job is not held by us."""


class Round(Value):
    """One look at one cluster."""

    cluster: str
    at: datetime
    mode: Mode
    silence: str = ""
    """What went wrong, when the scheduler gave no answer; nothing was done then."""
    seen: tuple[Seen, ...] = ()
