"""One recovery as a trace: from the detection of a failure to training going on, cut into steps at milestones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from recovery.model import JobKey, Milestone, MilestoneKind, Value

STEP_NAMES = {
    MilestoneKind.ATTRIBUTED: "attribute",
    MilestoneKind.ADVISED: "decide",
    MilestoneKind.APPROVED: "wait for approval",
    MilestoneKind.ACTED: "act",
    MilestoneKind.ELIGIBLE: "wait until eligible",
    MilestoneKind.ALLOCATED: "wait for nodes",
    MilestoneKind.RESUMED: "start up and resume",
    MilestoneKind.COMPLETED: "complete",
}
"""What was done in the time that ends with a milestone."""


class Step(Value):
    """The time between two milestones."""

    name: str
    start: datetime
    end: datetime
    detail: str = ""
    """What the milestone at the end says."""


class RecoveryTrace(Value):
    """One recovery of one job."""

    job: JobKey
    attempt: int = Field(ge=0)
    """The attempt that failed."""
    generation: int = Field(ge=0)
    """Of the advice that was followed."""
    milestones: tuple[Milestone, ...] = Field(min_length=1)
    """In the order of their times, the detection first."""
    attributes: dict[str, str] = Field(default_factory=dict)
    """Further facts for whoever searches traces, such as the verdict's category and cause."""

    @classmethod
    def of(
        cls,
        job: JobKey,
        attempt: int,
        generation: int,
        milestones: Sequence[Milestone],
        attributes: dict[str, str] | None = None,
    ) -> RecoveryTrace | None:
        """Return the recovery that led to `attempt`, or None when no failure was detected before it.

        `milestones` are the job's, of all its attempts: the trace begins at the last detection in an attempt before
        `attempt` and goes on through all that was reached since.
        """
        detections = [each for each in milestones if each.kind is MilestoneKind.DETECTED and each.attempt < attempt]
        if not detections:
            return None
        detection = max(detections, key=lambda each: each.attempt)
        since = [
            each
            for each in milestones
            if each.kind in STEP_NAMES and detection.attempt <= each.attempt <= attempt and each.at >= detection.at
        ]
        ordered = sorted(since, key=lambda each: each.at)
        return cls(
            job=job,
            attempt=detection.attempt,
            generation=generation,
            milestones=(detection, *ordered),
            attributes=attributes or {},
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """The time from the detection to the last milestone, without gap or overlap."""
        pairs = zip(self.milestones, self.milestones[1:], strict=False)
        return tuple(
            Step(name=STEP_NAMES[after.kind], start=before.at, end=after.at, detail=after.detail)
            for before, after in pairs
        )
