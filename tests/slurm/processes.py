"""Finding and ending processes by what their environment says, whoever their parent is by now."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_QUIET_ROUNDS = 5
_MAX_ROUNDS = 100
_ROUND_S = 0.1


def end_processes_marked(marks: set[bytes]) -> None:
    """Kill every process whose environment has all of `marks` (``NAME=value``), and the slurmstepds that started them,
    until none was there for half a second: a slurmstepd shows itself only by the task that it starts."""
    quiet_rounds = 0
    for _ in range(_MAX_ROUNDS):
        found = _processes_marked(marks)
        for pid in found:
            _kill(pid)
        quiet_rounds = 0 if found else quiet_rounds + 1
        if quiet_rounds == _QUIET_ROUNDS:
            return
        time.sleep(_ROUND_S)


def _processes_marked(marks: set[bytes]) -> list[int]:
    """The slurmstepds come first, so that none reports the death of its task. They are found as parents: not every
    version's slurmstepd shows an environment, and none says which node it serves."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    marked = [pid for pid in pids if pid != os.getpid() and marks <= _environment(pid)]
    stepds = {parent for pid in marked if _name(parent := _parent(pid)) == "slurmstepd"}
    return [*stepds, *marked]


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
