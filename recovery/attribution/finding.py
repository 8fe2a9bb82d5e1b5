"""What one attribution rule found, before it becomes the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.attribution.reading import Reading
from recovery.model import Action, Category, Confidence, SymptomKind


@dataclass(frozen=True)
class Finding:
    """Cause, culprits and advice of one rule, with the lines that it rests on."""

    category: Category
    cause: str
    action: Action
    summary: str
    """One sentence without the node, which is added."""
    evidence: tuple[Reading, ...] = ()
    culprits: tuple[str, ...] = ()
    confidence: Confidence = Confidence.LIKELY
    unlocated_because: str = ""
    """Why there is no culprit although this kind of failure has one."""
    located_by: str = ""
    """By what the culprit was found, as a clause."""
    ruled_out: tuple[str, ...] = ()
    symptom: SymptomKind | None = None
    """None: told by the order of events (see `endings.symptom`)."""
    place: str = ""
    """Where in the code or the hardware, the same on any node: for recognising repetition."""
    metric_evidence: tuple[str, ...] = ()
    """Metric samples, in the text they came in."""
