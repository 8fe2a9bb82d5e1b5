"""What processes report of themselves, collected: lines that the catalogue knows, and exceptions that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from recovery.attribution.endings import without_harmless
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.tracebacks import PythonException
from recovery.model import Action, Category
from recovery.signatures.catalogue import NOBODY, Witness

_AT_ONCE = timedelta(seconds=5)
_PRECEDENCE = (
    Category.HARDWARE_GPU,
    Category.HOST,
    Category.SOFTWARE_STACK,
    Category.STORAGE,
    Category.HARDWARE_NETWORK,
    Category.DATA,
    Category.NUMERICAL,
    Category.INFRA_TRANSIENT,
    Category.USER_CODE,
)
_SUMS_UP = frozenset({"nccl_system_error", "nccl_cuda_error"})
"""What NCCL makes of an error that the same process mostly tells by itself."""


@dataclass(frozen=True)
class Fault:
    """A root line of a process: known to the catalogue, or an exception that it does not know."""

    reading: Reading
    category: Category
    cause: str
    action: Action
    blames_reporter: bool
    place: str
    exception: PythonException | None = None
    """Set for what the catalogue does not know."""


def faults_of_processes(scene: Scene) -> list[Fault]:
    """Return what training did not survive, in order. What NCCL sums up counts where its process says no more."""
    places = {e.last.order: e.place for e in scene.exceptions}
    unknown = {
        e.last.order: e
        for e in scene.exceptions
        if e.match is None and e.name != "SystemExit" and not scene.survived(e.last)
    }
    known = without_harmless(scene, scene.roots(Witness.PROCESS))
    told = {r.process for r in known if r.cause not in _SUMS_UP}
    told |= {r.process for r in scene.readings if r.cause == "peer_unreachable"}
    faults = [_known(r, places.get(r.order, "")) for r in known if r.cause not in _SUMS_UP or r.process not in told]
    faults += [_unknown(unknown[r.order]) for r in without_harmless(scene, (e.last for e in unknown.values()))]
    return sorted(faults, key=lambda f: f.reading.order)


def _known(reading: Reading, place: str) -> Fault:
    signature = reading.signature
    return Fault(
        reading=reading,
        category=signature.category,
        cause=signature.cause,
        action=signature.action,
        blames_reporter=signature.culprit != NOBODY,
        place=place,
    )


def _unknown(exception: PythonException) -> Fault:
    return Fault(
        reading=exception.last,
        category=Category.USER_CODE,
        cause="python_exception",
        action=Action.STOP,
        blames_reporter=False,
        place=f"{exception.name}@{exception.place}",
        exception=exception,
    )


def first_of(faults: Sequence[Fault]) -> Fault:
    """The earliest; among those at once, the one that explains the others."""
    at_once = [f for f in faults if together(faults[0], f)]
    return min(at_once, key=lambda f: (_precedence(f.category), f.reading.order))


def together(one: Fault, other: Fault) -> bool:
    """Whether they came in the same moment, or of the same process where times are not known."""
    if one.reading.at and other.reading.at:
        return abs(other.reading.at - one.reading.at) <= _AT_ONCE
    return one.reading.rank == other.reading.rank and one.reading.node == other.reading.node


def _precedence(category: Category) -> int:
    return _PRECEDENCE.index(category) if category in _PRECEDENCE else len(_PRECEDENCE)


def quoted(faults: Sequence[Fault]) -> tuple[Reading, ...]:
    """Return the lines of the first few, as evidence."""
    return tuple(f.reading for f in faults[:8])
