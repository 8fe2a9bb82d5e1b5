"""What it costs to read Slurm's own answer about many jobs: the simulated cluster's is cheaper."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from activities.scheduler.squeue_json import read_jobs

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "slurm" / "squeue-24.11.json"
READINGS = 5


def parsing_s(jobs: int) -> float:
    """Return the least CPU seconds that one answer of ``squeue --json`` about `jobs` running jobs takes."""
    answer = json.loads(RECORDED.read_text())
    running = next(job for job in answer["jobs"] if "RUNNING" in job["job_state"])
    answer["jobs"] = [running | {"job_id": number} for number in range(1, jobs + 1)]
    text = json.dumps(answer)
    took = []
    for _ in range(READINGS):
        began = time.process_time()
        read_jobs(text, datetime.now(UTC))
        took.append(time.process_time() - began)
    return min(took)
