"""Exceptions that a program caught and printed while it started: it speaks on, as one that ended by them does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from recovery.attribution.reading import Reading
from recovery.attribution.tracebacks import PythonException
from recovery.detection.markers import IterationFinished

_LATER = timedelta(minutes=1)
"""Exit handlers, flushes and uploads of a program that ends are over by then."""
_LINES_OF_WORK = 5
_PROGRAMS = ("stdout", "stderr", "")
_OF_SLURM = ("srun: ", "slurmstepd: ")
_ENDED = frozenset({"process_exited", "step_aborted", "killed_after_task_failure", "cancelled"})


def handled_at_start(exceptions: Sequence[PythonException], readings: Sequence[Reading], ended: bool) -> frozenset[int]:
    """Return the orders of the last lines of exceptions before the first iteration whose process was at work
    afterwards. Once a process has ended, or the job has (`ended`), the last exception of each process may be why."""
    first_iteration = next((r.order for r in readings if isinstance(r.marker, IterationFinished)), None)
    early = [e for e in exceptions if first_iteration is None or e.last.order < first_iteration]
    if not early:
        return frozenset()
    over = ended or any(r.cause in _ENDED for r in readings)
    last_of = {e.last.process: e.last.order for e in exceptions}
    quoted = {order for e in exceptions for order in range(e.first.order, e.last.order + 1)}
    own = [r for r in readings if _is_own_word(r) and r.order not in quoted]
    return frozenset(
        e.last.order
        for e in early
        if not (over and last_of[e.last.process] == e.last.order) and _went_to_work(e.last, own)
    )


def _went_to_work(end: Reading, own: Sequence[Reading]) -> bool:
    later = [r for r in own if r.process == end.process and r.at and end.at and r.at - end.at > _LATER]
    return len(later) >= _LINES_OF_WORK


def _is_own_word(reading: Reading) -> bool:
    """Whether a program says something that is no known trouble. What threads of an ending process print mostly is."""
    in_program = reading.line.stream in _PROGRAMS and not reading.text.startswith(_OF_SLURM)
    return in_program and reading.match is None and bool(reading.text)
