"""What a service is asked about one attempt, and how it answers, whichever it is."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pydantic import Field

from recovery.attribution.incident import LogLine
from recovery.model import JobKey, NodeName, Progress, SymptomKind, Value, Verdict
from recovery.opinion import Heard
from recovery.policy import Ending


class AskPhase(StrEnum):
    """How long the asker can wait."""

    FAST = "fast"
    """Beside relight's own attribution: what is not there when that is done is not waited for."""
    SLOW = "slow"
    """While the advice waits to be carried out, or has been."""


class Question(Value):
    """One attempt that failed, or that may have."""

    job: JobKey
    attempt: int = Field(ge=0)
    key: str
    """The same for the same question, however often it is asked; in the slow phase the key of the advice."""
    job_name: str = ""
    user: str = ""
    partition: str = ""
    failed: bool
    """Whether the attempt has failed beyond doubt; a fatal line alone may be a quotation."""
    symptom: SymptomKind
    ending: Ending
    nodes: tuple[NodeName, ...] = ()
    """The attempt's allocation."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    progress: Progress = Progress()
    own_files: tuple[str, ...] = ()
    """Files that hold the attempt's output and no other attempt's."""
    lines: tuple[LogLine, ...] = ()
    """The attempt's output, as far as attribution reads it; in the fast phase there is none yet."""
    verdict: Verdict | None = None
    """What relight itself says; in the fast phase it does not know yet."""


class AttributionService(Protocol):
    """One service."""

    @property
    def name(self) -> str:
        """What it is called on record."""
        ...

    @property
    def fast_s(self) -> float:
        """How long the fast phase may take; 0: the service has none."""
        ...

    @property
    def slow_s(self) -> float:
        """How long the slow phase may take."""
        ...

    async def ask(self, question: Question, phase: AskPhase) -> Heard:
        """Return what the service thinks, or why it has no opinion, within the time of `phase`. Raises nothing."""
        ...

    async def close(self) -> None:
        """Give up the connections."""
        ...
