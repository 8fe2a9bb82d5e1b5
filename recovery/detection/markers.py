"""The markers of progress that a training program's lines are read into.

A *completed* marker says that something finished: an iteration, an evaluation step, a checkpoint written or loaded.
Only those count as progress: a line that says that something begins proves nothing about the past minute.
"""

from __future__ import annotations

from enum import StrEnum

from recovery.model import Value


class Phase(StrEnum):
    """What an attempt is doing, as `recovery.model.Progress.phase` spells it."""

    START_UP = "start-up"
    COMPILE = "compile"
    TRAIN = "train"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"


class IterationFinished(Value):
    """A training iteration (an optimiser step) is done."""

    n: int | None
    """Its number; None where the form prints none (the loss lines of the HF Trainer)."""
    total: int | None = None
    """How many the loop will run, where the line says so."""
    loss: float | None = None
    """None where the line has none: Megatron-LM leaves the loss out when it is NaN."""
    step_time_s: float | None = None
    """Seconds per iteration."""
    throughput: float | None = None
    throughput_unit: str = ""
    """``TFLOP/s`` or ``tokens/s`` per device, or ``samples/s`` of the job."""
    batch: int | None = None
    """The global batch size in samples, where the line has it: an iteration over more samples takes longer."""
    from_bar: bool = False
    """Read from a progress bar without a name, which any loop of the program may draw."""


class EvaluationStep(Value):
    """One step of an evaluation is done."""

    n: int
    total: int | None = None


class EvaluationFinished(Value):
    """An evaluation is done."""

    iteration: int | None = None


class CheckpointBegun(Value):
    """A checkpoint write began."""

    iteration: int | None = None
    blocks_training: bool = False
    """The form prints no end, and training waits for the write: the next iteration says that it finished."""


class CheckpointFinished(Value):
    """A checkpoint write finished: a restart can load it."""

    iteration: int | None = None


class CheckpointLoading(Value):
    """A checkpoint is being loaded."""

    iteration: int | None = None


class CheckpointLoaded(Value):
    """A checkpoint was loaded."""

    iteration: int | None = None


class PhaseChanged(Value):
    """The program says that it begins something else."""

    phase: Phase


class TrainingCompleted(Value):
    """The program says that it has trained as far as it was asked to."""


Marker = (
    IterationFinished
    | EvaluationStep
    | EvaluationFinished
    | CheckpointBegun
    | CheckpointFinished
    | CheckpointLoading
    | CheckpointLoaded
    | PhaseChanged
    | TrainingCompleted
)
