"""Submits the example training program to the real cluster, with a fault on request."""

from __future__ import annotations

import json
from pathlib import Path

from tests.slurm.cluster import SlurmCluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"

ACT = {"relight": {"mode": "act"}}
OBSERVE = {"relight": {"mode": "observe"}}


class Training:
    """One training job on the real cluster."""

    def __init__(self, slurm: SlurmCluster, job_id: str) -> None:
        self.slurm = slurm
        self.job_id = job_id

    @property
    def log(self) -> str:
        """What the job has written."""
        path = self.slurm.directory / "work" / f"relight-example-{self.job_id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def field(self, name: str) -> str:
        """One field of ``scontrol show job``."""
        return self.slurm.field(self.job_id, name)


def submit(slurm: SlurmCluster, *options: str, comment: object = ACT, nodes: int = 4, **settings: object) -> Training:
    """Submit the example; `settings` are the variables of job.sbatch, such as ``FAULT="xid79"``."""
    text = comment if isinstance(comment, str) else json.dumps(comment)
    exports = ",".join(
        ["ALL", f"TRAIN_PY={EXAMPLES / 'train.py'}", *(f"{name}={value}" for name, value in settings.items())]
    )
    script = (EXAMPLES / "job.sbatch").read_text()
    job_id = slurm.sbatch(script, f"--nodes={nodes}", f"--comment={text}", f"--export={exports}", *options)
    return Training(slurm, job_id)
