"""What a job that was submitted in the place of another one goes on from: the older one's attempts and exclusions.

Without them its budgets would begin anew, and retries would be unbounded. They are the result of the older job's
workflow, and count only where that names this very job as its successor: anybody may write a comment.
"""

from __future__ import annotations

from recovery.model import Exclusion, JobId, Value
from recovery.policy import PastAttempt


class Handed(Value):
    """What one workflow hands on to that of the job in its place."""

    past: tuple[PastAttempt, ...] = ()
    """All attempts of the line, those of earlier jobs first."""
    exclusions: tuple[Exclusion, ...] = ()


class Inherited(Value):
    """What became of the look for a predecessor's word."""

    handed: Handed = Handed()
    of: JobId | None = None
    """The predecessor; None: there is none."""
    resubmissions: int = 0
    """How often the line was submitted anew."""
    lost: bool = False
    """There is a predecessor, and what it handed on is not to be had."""
