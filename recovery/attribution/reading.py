"""One log line with everything that it tells by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.attribution.incident import LogLine
from recovery.detection.markers import Marker
from recovery.model import Action, Category
from recovery.signatures.catalogue import NOBODY, Match, Role, Signature, Witness

CLOCKS_AGREE_WITHIN = timedelta(seconds=5)
"""What the stamps of two sources may differ by for one moment."""

UNKNOWN_TEXT = Signature.model_construct(
    id="",
    pattern="",
    component="",
    category=Category.UNKNOWN,
    cause="",
    role=Role.NOISE,
    witness=Witness.PROCESS,
    fatal=False,
    everywhere=None,
    everywhere_action=Action.NONE,
    echoed=False,
    culprit=NOBODY,
    action=Action.NONE,
    source="",
    reading="",
)
"""Stands for "the catalogue does not know this line"."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A line, read."""

    order: int
    """Position among all lines of the incident, from 0."""
    line: LogLine
    text: str
    """The line without prefixes."""
    node: str
    """The allocation's node that printed it; empty when unknown or when it is another machine."""
    rank: int | None
    task: int | None
    rank_printed: bool
    """Whether the line's own prefix names the rank."""
    at: datetime | None
    forwarded_late: bool
    """The collector stamped it long after the time that the line itself states: `at` is the latter."""
    match: Match | None
    marker: Marker | None

    @property
    def signature(self) -> Signature:
        """The catalogue entry that knows the line, or `UNKNOWN_TEXT`."""
        return self.match.signature if self.match else UNKNOWN_TEXT

    @property
    def cause(self) -> str:
        """The cause that the catalogue gives the line; empty when it does not know it."""
        return self.signature.cause

    @property
    def process(self) -> tuple[str, int | None, int | None]:
        """What tells the process that printed it from others."""
        return (self.node, self.rank, self.task)

    def is_before(self, other: Reading) -> bool:
        """Whether it came earlier. Within one moment no order counts: collectors mix it up. Between moments of one
        source the order of the lines does, not their times: clocks of different hosts disagree. Two sources may have
        been read one after the other: between them only stamps tell, where they differ by more than clocks do."""
        if self.line.source != other.line.source:
            return self.at is not None and other.at is not None and other.at - self.at > CLOCKS_AGREE_WITHIN
        return self.order < other.order and (self.at is None or self.at != other.at)

    def is_a(self, role: Role, *witnesses: Witness) -> bool:
        """Whether the catalogue gives the line this role (and one of these witnesses, if any are named)."""
        if self.match is None or self.signature.role is not role:
            return False
        return not witnesses or self.signature.witness in witnesses

    def speaks_of(self, category: Category) -> bool:
        """Whether the catalogue knows the line as one of this category."""
        return self.match is not None and self.signature.category is category

    def field(self, name: str) -> str:
        """Return a captured field, empty when it took no part."""
        return self.match.fields.get(name, "") if self.match else ""
