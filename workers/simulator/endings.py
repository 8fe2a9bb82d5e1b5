"""How an attempt that a limit, the kernel or another job ended shows in Slurm, in the words of Slurm 22.05."""

from __future__ import annotations

from activities.scheduler.protocol import JobState
from recovery.model import Value


class Ending(Value):
    """What the job's record and its output say."""

    reason: str
    exit_signal: int = 0
    why: str = ""
    """What the message in the output adds to CANCELLED."""
    said: str = ""
    """slurmstepd's line before it, with the job's number."""


ENDINGS = {
    JobState.TIMEOUT: Ending(reason="TimeLimit", exit_signal=15, why="DUE TO TIME LIMIT"),
    JobState.PREEMPTED: Ending(reason="None", exit_signal=15, why="DUE TO PREEMPTION"),
    JobState.OUT_OF_MEMORY: Ending(
        reason="OutOfMemory",
        exit_signal=125,
        said="slurmstepd: error: Detected 1 oom_kill event in StepId={number}.0. "
        "Some of the step tasks have been OOM Killed.",
    ),
}
