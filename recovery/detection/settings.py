"""When silence, slowness or a fatal line counts as a failure. Per cluster; a job may set two of these itself."""

from __future__ import annotations

from pydantic import ConfigDict, Field, field_validator

from recovery.detection.markers import Phase
from recovery.detection.progress import ProgressPattern
from recovery.model import Value


class DetectionSettings(Value):
    """The operator's limits on detection. The defaults would rather see a hang late than kill a run that is well."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hang_floor_s: float = Field(default=600, gt=0)
    """No shorter silence in training is ever a hang, however fast the job's steps are."""
    evaluate_floor_s: float = Field(default=1_800, gt=0)
    """The same while an evaluation runs."""
    checkpoint_floor_s: float = Field(default=1_800, gt=0)
    """The same while a checkpoint is written."""
    compile_floor_s: float = Field(default=1_800, gt=0)
    """The same while the model is compiled again during training."""
    unlearned_floor_s: float = Field(default=3_600, gt=0)
    """The same until the job has shown its own pace (three intervals in training, one in another phase), and while its
    workers start again by themselves."""
    hang_factor: float = Field(default=3.0, ge=1)
    """How many times its usual interval between two completed markers (the 90th percentile) a job may stay silent."""
    longest_factor: float = Field(default=1.5, ge=1)
    """How many times the longest interval that this attempt came through it may stay silent."""
    hang_after_s: float | None = Field(default=None, ge=1)
    """A fixed deadline instead of the learned one, in every phase. A job's own ``hang_after_s`` replaces it."""
    startup_after_s: float | None = Field(default=None, ge=1)
    """How long an attempt may run without any progress line at all; None: for ever, because the job's progress may be
    of a form that is not understood."""
    communication_hang_floor_s: float = Field(default=60, gt=0)
    """Instead of the floors above, once the program itself has reported a communication that timed out."""
    settle_s: float = Field(default=30, ge=0)
    """How long a source must have been readable again, or such a report must have stood, before its silence counts."""
    fault_grace_s: float = Field(default=10, ge=0)
    """How long after a fatal line an attempt must show no progress before the fault counts as established while the job
    still runs; at least three of the job's own intervals."""
    fault_grace_cap_s: float = Field(default=60, ge=0)
    """What those three intervals are cut to, as long as the next marker would have been due by then; also the grace
    while a launcher takes its workers down."""
    startup_fault_grace_s: float = Field(default=300, ge=0)
    """The same grace while the attempt's pace is not known, as at its start, or while its workers start again."""
    progress_pattern: str | None = None
    """The job's own progress line: RE2 with a named group ``iteration``, and maybe ``loss`` and ``step_time_s``."""

    @field_validator("progress_pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            ProgressPattern(pattern)
        return pattern

    def for_job(self, *, hang_after_s: float | None, progress_pattern: str | None) -> DetectionSettings:
        """Return these settings with what a job asks for. Raises ValueError when its pattern can't be used."""
        if progress_pattern is not None:
            ProgressPattern(progress_pattern)
        return self.model_copy(
            update={
                "hang_after_s": hang_after_s if hang_after_s is not None else self.hang_after_s,
                "progress_pattern": progress_pattern if progress_pattern is not None else self.progress_pattern,
            }
        )

    def floor_s(self, phase: Phase) -> float:
        """Return the shortest silence that can be a hang in `phase`."""
        return {
            Phase.START_UP: self.unlearned_floor_s,
            Phase.COMPILE: self.compile_floor_s,
            Phase.TRAIN: self.hang_floor_s,
            Phase.EVALUATE: self.evaluate_floor_s,
            Phase.CHECKPOINT: self.checkpoint_floor_s,
        }[phase]
