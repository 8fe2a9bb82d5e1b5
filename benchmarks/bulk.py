"""What it costs to read a large cluster at once: 5,000 jobs and 10,000 nodes, in each version's format.

The answers are made from recorded ones, each job with an id, a name and an allocation of its own. They are read as the
transports read them, in a process of their own, so that its peak memory is that of one reading.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Report
from benchmarks.processes import peak_memory_bytes

RECORDED = Path(__file__).parent.parent / "tests" / "data" / "slurm"
VERSIONS = ("22.05", "24.11", "26.05")
NODES, NODES_A_JOB = 10_000, 64
TIMES = 3
TARGET_S, TARGET_MIB = 1.5, 150.0
MIB = 2**20


def measure(jobs: int) -> Report:
    """Make answers of `jobs` jobs and read them, version by version."""
    figures = []
    with tempfile.TemporaryDirectory() as directory:
        nodes = Path(directory) / "nodes"
        nodes.write_text(_all_nodes())
        for version in VERSIONS:
            answer = Path(directory) / f"jobs-{version}.json"
            answer.write_text(_all_jobs(version, jobs))
            figures += _figures(version, answer, nodes)
    measured = f"{jobs} jobs of {NODES_A_JOB} nodes each and {NODES} nodes, the fastest of {TIMES} readings"
    return Report("bulk", measured, tuple(figures))


def _figures(version: str, jobs: Path, nodes: Path) -> list[Figure]:
    command = [sys.executable, "-m", "benchmarks.bulk", str(jobs), str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    size = f"{jobs.stat().st_size / MIB:.0f} MiB of JSON"
    return [
        Figure(f"Slurm {version}, CPU", told["jobs_s"] + told["nodes_s"], "s", TARGET_S, size),
        Figure(f"Slurm {version}, of that the nodes", told["nodes_s"], "s"),
        Figure(f"Slurm {version}, memory for one reading", told["peak_bytes"] / MIB, "MiB", TARGET_MIB),
    ]


def _all_jobs(version: str, how_many: int) -> str:
    """Repeat a recorded answer's jobs."""
    answer: dict[str, Any] = json.loads((RECORDED / f"squeue-{version}.json").read_text())
    recorded = answer["jobs"]
    jobs = []
    for number in range(how_many):
        job = recorded[number % len(recorded)] | {"job_id": 100_000 + number, "name": f"train-{number}"}
        if job["nodes"]:
            first = number * 8 % (NODES - NODES_A_JOB) + 1
            job["nodes"] = f"node[{first:05}-{first + NODES_A_JOB - 1:05}]"
        jobs.append(job)
    return json.dumps(answer | {"jobs": jobs})


def _all_nodes() -> str:
    """Rows as `activities.scheduler.sinfo_table` asks for them, each node in two partitions."""
    return "".join(
        f"node{number:05}\x1fALLOCATED\x1f{partition}\x1fh100,ib\x1fnone\x1e\n"
        for number in range(1, NODES + 1)
        for partition in ("main", "other")
    )


def _read(jobs: Path, nodes: Path) -> dict[str, float]:
    """Read both answers several times; in a process of its own, whose peak memory is that of the first reading."""

    before = peak_memory_bytes()
    readings = [_read_once(jobs, nodes)]
    peak = peak_memory_bytes() - before
    readings += [_read_once(jobs, nodes) for _ in range(TIMES - 1)]
    jobs_s, nodes_s = (min(taken) for taken in zip(*readings, strict=True))
    return {"jobs_s": jobs_s, "nodes_s": nodes_s, "peak_bytes": peak}


def _read_once(jobs: Path, nodes: Path) -> tuple[float, float]:
    """Return the CPU seconds for the jobs, and for the nodes."""
    from activities.scheduler.sinfo_table import read_nodes
    from activities.scheduler.squeue_json import read_jobs

    began_s = time.process_time()
    found = read_jobs(jobs.read_bytes().decode(errors="replace"), datetime.now(UTC))
    between_s = time.process_time()
    there = read_nodes(nodes.read_bytes().decode(errors="replace"))
    ended_s = time.process_time()
    if not found or len(there) != NODES:
        raise ValueError(f"{len(found)} jobs and {len(there)} nodes were read")
    return between_s - began_s, ended_s - between_s


if __name__ == "__main__":
    print(json.dumps(_read(Path(sys.argv[1]), Path(sys.argv[2]))))
