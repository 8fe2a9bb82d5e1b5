"""How long the command line takes to start, and to diagnose a small log."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, Report
from benchmarks.processes import Run, run_to_end
from benchmarks.training_log import crashed_log

HELP_TARGET_S = 0.4
RELIGHT = str(Path(sys.executable).parent / "relight")


def measure(runs: int) -> Report:
    """Run each command `runs` times, in turns, so that load from outside hits all of them alike."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "job.log"
        log.write_text(crashed_log(iterations=200))
        commands = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "relight --help": (RELIGHT, "--help"),
            "relight diagnose, a log of 200 iterations": (RELIGHT, "diagnose", str(log)),
        }
        for command in commands.values():
            run_to_end(command)
        took: dict[str, list[Run]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                took[name].append(run_to_end(command))
    return Report("cli", f"{runs} starts of each, in turns, files cached", tuple(_figures(took)))


def _figures(took: dict[str, list[Run]]) -> list[Figure]:
    baseline = _median_cpu_s(took["python -c pass"])
    figures = []
    for name, runs in took.items():
        wall_s = statistics.median(run.wall_s for run in runs)
        fastest_s = min(run.wall_s for run in runs)
        target = HELP_TARGET_S if name == "relight --help" else None
        cpu_s = _median_cpu_s(runs)
        figures += [
            Figure(f"{name}, wall, median", wall_s, "s", target, f"fastest {fastest_s:.3f} s"),
            Figure(f"{name}, CPU, median", cpu_s, "s", None, f"{cpu_s / baseline:.1f} x python -c pass"),
        ]
    return figures


def _median_cpu_s(runs: Sequence[Run]) -> float:
    return statistics.median(run.cpu_s for run in runs)
