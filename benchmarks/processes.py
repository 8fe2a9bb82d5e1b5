"""What processes cost: CPU seconds and resident memory as Linux counts them.

CPU seconds and not wall time wherever that is possible: they hardly change when the machine is busy with other things.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """What a process has used up at a moment."""

    at_s: float
    cpu_s: float
    rss_bytes: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read it from /proc. Raises OSError when there is no such process."""
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        cpu_s = (int(stat[11]) + int(stat[12])) / _TICKS_PER_S
        return cls(time.monotonic(), cpu_s, resident_pages * _PAGE_BYTES)

    def cpu_percent_since(self, earlier: Usage) -> float:
        """Return the share of one core that was used since `earlier`."""
        return 100 * (self.cpu_s - earlier.cpu_s) / (self.at_s - earlier.at_s)


@dataclass(frozen=True)
class Run:
    """One run of a command to its end."""

    wall_s: float
    cpu_s: float
    output: bytes


def run_to_end(command: Sequence[str], stream: Iterable[bytes] = ()) -> Run:
    """Run `command` with `stream` as its standard input; its errors are thrown away.

    Raises `subprocess.CalledProcessError` when it fails.
    """
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output = _feed_and_read(process, stream)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Run(wall_s, usage.ru_utime + usage.ru_stime, output)


def _feed_and_read(process: subprocess.Popen[bytes], stream: Iterable[bytes]) -> bytes:
    """For commands that print only after they have read everything."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process has no pipes")
    with process.stdin:
        process.stdin.writelines(stream)
    with process.stdout:
        return process.stdout.read()


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had resident, without what it inherited from its parent."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024
