"""What a service of the site thinks of one failed attempt, beside relight's own verdict."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from recovery.model import Category, Confidence, NodeName, Value

MAX_OPINION_NODES = 64
MAX_OPINION_CHARS = 600


class Hint(StrEnum):
    """What a service would do with the job. `CONTINUE`: it sees no failure."""

    STOP = "stop"
    RESTART = "restart"
    CONTINUE = "continue"
    UNKNOWN = "unknown"


class Opinion(Value):
    """A service's answer, bounded and redacted."""

    kind: Literal["opinion"] = "opinion"
    says: str
    """Which service, as the operator calls it."""
    hint: Hint = Hint.UNKNOWN
    cause: str = ""
    """A short word for it, the service's own; empty: not told."""
    category: Category = Category.UNKNOWN
    nodes: tuple[NodeName, ...] = Field(default=(), max_length=MAX_OPINION_NODES)
    """Nodes of the attempt that it blames; others that it named are left out."""
    confidence: Confidence = Confidence.LIKELY
    text: str = Field(default="", max_length=MAX_OPINION_CHARS)
    """Its reason in one line; what was left out of the answer is told at its end."""
    received_at: datetime

    @property
    def says_stop(self) -> bool:
        """Whether it says stop, and does not guess."""
        return self.hint is Hint.STOP and self.confidence is not Confidence.GUESS


class NoOpinion(Value):
    """Why a service has none."""

    kind: Literal["none"] = "none"
    says: str
    reason: str = Field(max_length=MAX_OPINION_CHARS)
    """What happened, and what to do about it where something can be done."""
    received_at: datetime


Heard = Annotated[Opinion | NoOpinion, Field(discriminator="kind")]
"""What came of asking."""
