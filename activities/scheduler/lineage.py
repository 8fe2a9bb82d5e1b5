"""What a job that was submitted in the place of another one carries in its comment, from its first moment on.

The comment is its owner's, who may write anything into it, and may copy it by submitting the job once more by hand. So
it is believed only where that can do no harm: among jobs of the same owner, and of a job that came to the scheduler at
the moment for which the lineage was written.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pydantic import AwareDatetime, Field, ValidationError

from activities.scheduler.protocol import JobRecord
from recovery.model import JobId, Value
from recovery.optin import MAX_COMMENT_CHARS, OptIn, parse_comment

KEY = "relight-resubmission"
QUIET = timedelta(seconds=60)
"""How long no new job may have shown after a submission without an answer before another one is sent."""
PROMPT = timedelta(seconds=45)
"""How long a submission takes at most, from the look that called for it to the submit time. What is left of `QUIET`
is for clocks that differ."""
CLOCK_SKEW = QUIET - PROMPT


class Lineage(Value):
    """What the new job carries."""

    order: str = Field(max_length=200)
    """The key of the advice that it was submitted for: cluster, job, attempt and generation."""
    of: JobId
    """The job that it stands for."""
    count: int = Field(ge=1, le=10_000)
    """How often the first job of the line has been submitted anew."""
    since: AwareDatetime
    """When a look at all jobs began that showed none for the order, so that this one was submitted."""
    first: bool = False
    """Nothing can have been submitted for the order before."""
    old_is_over: bool = False
    """That look showed the old job ended as the order needs, or forgotten: nothing more of it matters."""

    def is_prompt(self, job: JobRecord) -> bool:
        """Whether `job`, which carries this, came to the scheduler when it was submitted: not long after, by a slow
        controller or a hand that copied the comment."""
        return -CLOCK_SKEW <= job.submitted_at - self.since <= PROMPT

    def is_of_the_oldest(self, job: JobRecord) -> bool:
        """Whether no job for the order can ever have had a lower number than `job`, which carries this.

        The next one is sent `QUIET` after this one, and only where a look shows none: so it has a higher number. And of
        several only the one with the lowest number is ever released, by a look that shows all that are there. A job
        that waits is never forgotten. So no other one has run or will, whatever the scheduler has forgotten.
        """
        return self.first and self.is_prompt(job)


def read_lineage(comment: str) -> Lineage | None:
    """Return what a comment says of the job's line; None where it says nothing that can be read."""
    if KEY not in comment:
        return None
    try:
        return Lineage.model_validate(_document(comment).get(KEY))
    except ValidationError:
        return None


def write_lineage(lineage: Lineage, comment: str, optin: OptIn) -> str | None:
    """Return `comment` with the lineage. None where that has no room in it, or is no JSON object. A job that was taken
    under guard by hand opts in by it, in the way in which it is guarded."""
    document = _document(comment)
    if comment.strip() and not document:
        return None
    if parse_comment(comment) is None:
        document |= {"relight": optin.model_dump(mode="json", exclude={"warning"}, exclude_none=True)}
    text = json.dumps(document | {KEY: lineage.model_dump(mode="json")}, separators=(",", ":"))
    return text if len(text) <= MAX_COMMENT_CHARS else None


def in_order_of_submission(job: JobRecord) -> int:
    """Sort jobs by it: Slurm counts them."""
    return int(job.job_id.partition("_")[0])


def _document(comment: str) -> dict[str, Any]:
    """The comment as JSON; empty where it is no object."""
    if len(comment) > MAX_COMMENT_CHARS:
        return {}
    try:
        document = json.loads(comment)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
