"""What a program caught and printed: it speaks on, or did so before, as one that ended by it does not."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.attribution.reading import Reading
from recovery.attribution.tracebacks import PythonException
from recovery.detection.markers import IterationFinished
from recovery.model import Category
from recovery.signatures.catalogue import Role, Witness

_LATER = timedelta(minutes=1)
"""Exit handlers, flushes and uploads of a program that ends are over by then."""
_LINES_OF_WORK = 5
_TIMES_SURVIVED = 2
_PROGRAMS = ("stdout", "stderr", "")
_OF_SLURM = ("srun: ", "slurmstepd: ")
_FRAME_INDENT = "  "
_ENDED = frozenset({"process_exited", "step_aborted", "killed_after_task_failure", "cancelled"})
_NOT_CAUGHT = frozenset({Category.HARDWARE_GPU, Category.HARDWARE_NETWORK})
"""A program cannot go on without its GPU or network, whatever it says."""


@dataclass(frozen=True, slots=True)
class _Printed:
    """Something that a program printed and may have caught."""

    end: Reading
    """Its last line."""
    kind: str


def handled(
    exceptions: Sequence[PythonException],
    readings: Sequence[Reading],
    outlived: Callable[[Reading], bool],
    ended: bool,
) -> frozenset[int]:
    """Return the orders of the last lines of exceptions, and of known faults that programs log, which were caught.

    Before the first iteration those whose process was at work afterwards, and the same of other processes; later the
    same as training `outlived` several times. Once a process has ended, or the job has (`ended`), the last of each
    process may be why, and others' habits say nothing.
    """
    printed = list(_printed(exceptions, readings))
    if not printed:
        return frozenset()
    start = _first_iteration(readings)
    catchable = [p for p in printed if p.end.signature.category not in _NOT_CAUGHT]
    caught = _caught_at_start([p for p in catchable if p.end.order < start], exceptions, readings)
    if ended or any(r.cause in _ENDED for r in readings):
        last_of = {p.end.process: p.end.order for p in printed}
        return frozenset(p.end.order for p in caught if p.end.order != last_of[p.end.process])
    kinds_at_start = {p.kind for p in caught}
    survived = Counter(p.kind for p in catchable if outlived(p.end))
    habits = {kind for kind, times in survived.items() if times >= _TIMES_SURVIVED}
    return frozenset(p.end.order for p in catchable if p.kind in (kinds_at_start if p.end.order < start else habits))


def _printed(exceptions: Sequence[PythonException], readings: Sequence[Reading]) -> Iterator[_Printed]:
    ends = {e.last.order: e for e in exceptions}
    for reading in readings:
        if exception := ends.get(reading.order):
            yield _Printed(reading, f"{exception.name}@{exception.place}")
        elif reading.is_a(Role.ROOT, Witness.PROCESS):
            yield _Printed(reading, reading.cause)


def _caught_at_start(
    early: Sequence[_Printed], exceptions: Sequence[PythonException], readings: Sequence[Reading]
) -> list[_Printed]:
    if not early:
        return []
    quoted = {r.order for e in exceptions for r in (e.first, e.last)}
    spoke_at: dict[tuple[str, int | None, int | None], list[datetime]] = {}
    for r in readings:
        if r.at and r.order not in quoted and _is_own_word(r):
            spoke_at.setdefault(r.process, []).append(r.at)
    for times in spoke_at.values():
        times.sort()
    return [p for p in early if _went_to_work(p.end, spoke_at.get(p.end.process, []))]


def _first_iteration(readings: Sequence[Reading]) -> int:
    """The order of the first iteration; one behind all lines when there is none."""
    behind = readings[-1].order + 1 if readings else 0
    return next((r.order for r in readings if isinstance(r.marker, IterationFinished)), behind)


def _went_to_work(end: Reading, spoke_at: Sequence[datetime]) -> bool:
    return end.at is not None and len(spoke_at) - bisect_right(spoke_at, end.at + _LATER) >= _LINES_OF_WORK


def _is_own_word(reading: Reading) -> bool:
    """Whether a program says something that is no known trouble, as what threads of an ending process print mostly is,
    and no frame of a traceback."""
    in_program = reading.line.stream in _PROGRAMS and not reading.text.startswith((*_OF_SLURM, _FRAME_INDENT))
    return in_program and reading.match is None and bool(reading.text)
