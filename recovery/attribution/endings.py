"""How the attempt ended, or that it did not: failed, hung, or still well."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.stall import is_overdue
from recovery.model import SymptomKind
from recovery.signatures.catalogue import Role, Witness

_WAITED_IN_VAIN = frozenset(
    {"collective_timeout", "rank_never_arrived", "heartbeat_missing", "watchdog_stuck", "watchdog_stuck_gil"}
)
_DEATHS = frozenset({"process_exited", "peer_lost", "host_oom_cgroup", "host_oom", "told_to_stop", "step_aborted"})
_EXIT_SUMMARIES = frozenset({"process_exited", "step_aborted", "killed_after_task_failure", "cancelled"})


def failed(scene: Scene) -> bool:
    """Whether the attempt has failed, or cannot go on by itself."""
    if scene.facts.has_failed:
        return True
    if scene.completed:
        return False
    output = _ProgramOutput(scene)
    return any(
        _shows_failure(r) and not scene.survived(r) and not output.is_harmless(r) for r in scene.readings
    ) or any(not scene.survived(e.last) and not output.is_harmless(e.last) for e in scene.exceptions)


def without_harmless(scene: Scene, readings: Iterable[Reading]) -> list[Reading]:
    """Leave out the lines that only look like a failure: program output that prints such texts all the time (generated
    code, samples, quoted logs) while training goes on and no process ends."""
    output = _ProgramOutput(scene)
    return [r for r in readings if not output.is_harmless(r)]


def symptom(scene: Scene) -> SymptomKind:
    """Tell a hang from a crash: in a hang, ranks wait in vain before the first process dies."""
    if scene.detected is SymptomKind.HANG:
        return SymptomKind.HANG
    raised = {e.first.order for e in scene.exceptions if e.match is None or e.match.signature.role is Role.ROOT}
    telling = [
        r
        for r in scene.readings
        if (r.cause in _WAITED_IN_VAIN or r.cause in _DEATHS or r.order in raised) and not scene.survived(r)
    ]
    if not telling:
        return SymptomKind.HANG if is_overdue(scene) else SymptomKind.CRASH
    at_first = [r for r in telling if not telling[0].is_before(r)]
    return SymptomKind.HANG if any(r.cause in _WAITED_IN_VAIN for r in at_first) else SymptomKind.CRASH


class _ProgramOutput:
    """Judges lines that a program may just have printed."""

    def __init__(self, scene: Scene) -> None:
        self._trusted = scene.facts.has_failed or any(
            r.cause in _EXIT_SUMMARIES and not scene.survived(r) for r in scene.readings
        )
        self._survived = {_likeness(r) for r in scene.readings if _may_be_output(r) and scene.survived(r)}

    def is_harmless(self, reading: Reading) -> bool:
        """Whether no process has ended and the line is on stdout, or one like it was survived before."""
        if self._trusted or not _may_be_output(reading):
            return False
        return reading.line.stream == "stdout" or _likeness(reading) in self._survived


def _may_be_output(reading: Reading) -> bool:
    by_an_outsider = reading.is_a(Role.ROOT, Witness.HOST, Witness.SCHEDULER)
    return not reading.rank_printed and reading.line.stream in ("stdout", "") and not by_an_outsider


def _likeness(reading: Reading) -> str:
    return reading.signature.id or reading.text[:40]


def _shows_failure(reading: Reading) -> bool:
    signature = reading.signature
    if reading.is_a(Role.ROOT):
        return signature.fatal
    if reading.cause == "job_requeued":
        return True
    return reading.is_a(Role.CASCADE) and (signature.witness is Witness.PEER or signature.cause in _EXIT_SUMMARIES)
