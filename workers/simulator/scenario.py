"""The four jobs of the demonstration: three that fail, each in its own way, and one that does not.

Together they take seven of eight nodes: one is left for the job that must avoid the node it failed on. On two busy
cores the last one is done well within a minute, restarts included.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from activities.scheduler.simulated_wire import JobSpec

TRAIN_PY = Path(__file__).parents[2] / "examples" / "training" / "train.py"
"""The training program, where the project runs from a checkout."""

GPU_FAULT, HANG, KEY_ERROR, HEALTHY = "gpu-fault", "hang", "key-error", "healthy"

BAD_NODE = "node02"
"""The node whose GPU falls off the bus; the first job is the one that runs there."""


def demo_jobs(directory: Path, train_py: Path = TRAIN_PY, *, step_s: float = 0.25) -> tuple[JobSpec, ...]:
    """Return the jobs in the order in which they are to be submitted.

    Logs and checkpoints go to `directory`; an iteration takes `step_s` seconds.
    """
    act = {"mode": "act"}
    xid79 = ("--fault", "xid79", "--fault-node", BAD_NODE, "--fault-iteration", "24", "--fault-linger-s", "2")
    hang = ("--fault", "hang", "--fault-iteration", "16")
    key_error = ("--fault", "keyerror", "--fault-iteration", "4")

    def job(name: str, nodes: int, opt_in: Mapping[str, object], iterations: int, fault: tuple[str, ...]) -> JobSpec:
        checkpoints = directory.absolute() / f"ckpt-{name}"
        return JobSpec(
            name=name,
            nodes=nodes,
            comment=json.dumps({"relight": opt_in}),
            working_directory=str(directory.absolute()),
            output="%x-%j.log",
            label=True,
            argv=(
                *(sys.executable, str(train_py), "--iterations", str(iterations), "--step-s", str(step_s)),
                *("--checkpoint-dir", str(checkpoints), "--checkpoint-every", "10", *fault),
            ),
        )

    return (
        # Prints its Xid at about 6 s, two seconds before it dies; resumes at iteration 20.
        job(GPU_FAULT, 3, act, 40, xid79),
        # Falls silent at about 4 s; resumes at iteration 10.
        job(HANG, 2, {**act, "hang_after_s": 6}, 40, hang),
        # Fails at about 1 s of every attempt, before any checkpoint.
        job(KEY_ERROR, 1, act, 40, key_error),
        # Runs for about 25 s.
        job(HEALTHY, 1, act, 100, ()),
    )
