"""Uncaught Python exceptions, put together from the interleaved lines of many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import re2

from recovery.attribution.reading import Reading
from recovery.signatures.catalogue import Catalogue, Match

_HEADER = "Traceback (most recent call last):"
_FRAME = re2.compile(r'^  File "([^"]{1,1000})", line \d{1,9}(?:, in (.{1,200}))?')
_LAST_LINE = re2.compile(
    r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
    r"(?:[Ee]rror|[Ee]xception|Exit|Interrupt|Warning|Iteration|Timeout|Failure|Failed|Fault|Refused)|Exception)"
    r"(?:: ?(.*))?$"
)
_LIBRARY = re2.compile(r"site-packages|dist-packages|/lib/python\d|^<frozen|/torch/|importlib|torchrun")
_SUMMARY_INDENT = "  "
"""torchrun's failure summary quotes a traceback this deep."""

_MAX_FRAMES = 200


@dataclass(frozen=True, slots=True)
class PythonException:
    """One uncaught exception of one process."""

    name: str
    """The type without its module, such as ``KeyError``."""
    message: str
    place: str
    """``file.py:function`` of the innermost frame outside of libraries, of the innermost one when all are; no line
    number, which moves with every edit above it. Empty without frames."""
    first: Reading
    """Its header line."""
    last: Reading
    """The line with type and message."""
    match: Match | None
    """What the catalogue makes of that line."""


@dataclass
class _Open:
    header: Reading
    indent: str
    frames: list[tuple[str, str]] = field(default_factory=list)


def read_exceptions(readings: Sequence[Reading], catalogue: Catalogue) -> tuple[PythonException, ...]:
    """Return the exceptions of all processes in order of their last lines."""
    open_by_process: dict[tuple[str, str, int | None, int | None, str], _Open] = {}
    found: list[PythonException] = []
    for reading in readings:
        process = (reading.line.source, reading.line.host, reading.rank, reading.task, reading.line.stream)
        if reading.text.endswith(_HEADER):
            indent = _SUMMARY_INDENT if reading.text.lstrip().startswith("traceback :") else ""
            open_by_process[process] = _Open(reading, indent)
        elif process in open_by_process:
            exception = _continue(open_by_process[process], reading, catalogue)
            if exception:
                found.append(exception)
                del open_by_process[process]
    return tuple(found)


def _continue(traceback: _Open, reading: Reading, catalogue: Catalogue) -> PythonException | None:
    text = reading.text.removeprefix(traceback.indent)
    frame = _FRAME.match(text)
    if frame:
        if len(traceback.frames) < _MAX_FRAMES:
            traceback.frames.append((frame.group(1), frame.group(2) or ""))
        return None
    last = _LAST_LINE.match(text)
    if not last:
        return None
    return PythonException(
        name=last.group(1).rsplit(".", 1)[-1],
        message=last.group(2) or "",
        place=_place(traceback.frames),
        first=traceback.header,
        last=reading,
        match=reading.match or catalogue.match(text),
    )


def _place(frames: Sequence[tuple[str, str]]) -> str:
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    for path, function in (own or list(frames))[-1:]:
        return f"{path.rsplit('/', 1)[-1]}:{function}"
    return ""
