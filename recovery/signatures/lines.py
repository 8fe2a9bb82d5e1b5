"""Raw log bytes into lines, and a line's prefixes into rank, host, time and text.

Everything here is bounded: a line of any length costs `MAX_LINE_BYTES` of memory, and prefixes are peeled with RE2.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import re2

from recovery.signatures.stamps import parse_stamp

MAX_LINE_BYTES = 16_384
"""What is kept of one line; the rest is dropped."""

_TERMINAL_CODES = re2.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LINE_END = re2.compile(rb"[\r\n]")


class LineSplitter:
    r"""Splits a growing file into lines, in constant memory.

    Bytes go in as they were read, torn anywhere; complete lines come out as clean text: cut at ``\n`` and ``\r`` (a
    progress bar's redraws are lines), bytes that are not UTF-8 replaced, terminal codes removed, empty lines dropped.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._tail = bytearray()
        self._pending_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """How many of the bytes fed so far belong to a line that has not ended yet. A cursor that stays this far behind
        the last byte read loses nothing when reading starts again there."""
        return self._pending_bytes

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes and return the lines that are now complete."""
        *ended, rest = _LINE_END.split(data)
        lines = [self._end_line(part) for part in ended]
        self._keep(rest)
        return [line for line in lines if line]

    def flush(self) -> list[str]:
        """Return the unfinished line, if there is one, as if it had ended: the file is known to be complete."""
        line = self._end_line(b"")
        return [line] if line else []

    def _keep(self, part: bytes) -> None:
        self._pending_bytes += len(part)
        room = self._max_line_bytes - len(self._tail)
        if room > 0:
            self._tail += part[:room]

    def _end_line(self, part: bytes) -> str:
        self._keep(part)
        text = clean(bytes(self._tail).decode("utf-8", errors="replace"))
        self._tail.clear()
        self._pending_bytes = 0
        return text


def clean(text: str) -> str:
    """Remove terminal codes and trailing blanks. Leading blanks stay: they carry structure in tracebacks."""
    if "\x1b" in text:
        text = _TERMINAL_CODES.sub("", text)
    return text.replace("\x00", "").rstrip()


@dataclass(slots=True)
class LinePrefix:
    """What the start of a line says about where and when it was printed."""

    rest: str
    """The line without its prefixes."""
    rank: int | None = None
    """The global rank, from ``[rank12]:``, ``[trainer|rank=12]``, ``rank12:``, ``rank12[71][MainThread]:`` or mpirun's
    ``[1,12]<stdout>:``."""
    task: int | None = None
    """The Slurm task, from ``srun --label``; the rank where one process runs per task."""
    host: str = ""
    """The printing host."""
    gpu: int | None = None
    """The local GPU index, from NCCL's ``[3]``."""
    at: datetime | None = None
    """The time that the line itself carries; without a zone where it names none."""


_RANK = re2.compile(
    r"^\s*(?:\[(?:(?:rank|RANK) ?|(?:[\w.-]{1,40}[|,] ?)?rank[=:] ?)(\d{1,7})\]:?"
    r"|rank ?(\d{1,7})(?:\[[^\[\]]{1,60}\]){0,3}:) ?"
)
_MPI_RANK = re2.compile(r"^\s*\[\d{1,5},(\d{1,7})\]<std(?:out|err|diag)>: ?")
_RAY_WORKER = re2.compile(r"^\s*\([^()]{0,200}\bpid=\d{1,9}[^()]{0,100}\) ?")
_TASK = re2.compile(r"^ {0,6}(\d{1,7}):(?: |$)")
_TORN_RANK = re2.compile(r"\[rank(\d{1,7})\]: ?")
_LOCAL_RANK = re2.compile(r"^\s*\[\w+?\d{1,4}\]:")
_NCCL = re2.compile(r"^\s*([A-Za-z0-9][\w.-]{0,252}):(\d{1,8}):(\d{1,8}) (?:\[(\d{1,3})\] )?")
_SERVICE = re2.compile(r"^[A-Za-z0-9][\w.-]{0,120}[_-]\d{1,4} {1,60}\| ?")
_HOST = re2.compile(r"^([A-Za-z0-9][\w.-]{0,252}): ")
_SYSLOG = re2.compile(r"^([A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}) ([A-Za-z0-9][\w.-]{0,252}) ")
_SYSLOG_ISO = re2.compile(
    r"^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})) ([A-Za-z0-9][\w.-]{0,252}) "
    r"(?:kernel|systemd|slurmd|slurmstepd|nhc)[\[:]"
)
_HOST_SHAPE = re2.compile(r"^[a-z][a-z0-9.-]*\d[a-z0-9.-]*$")
_NOT_HOSTS = re2.compile(
    r"^(?:rank|gpu|cuda|step|epoch|iter|iteration|worker|local|mlx5|eth|ib|py|nvidia-nvswitch)[\d.-]+$"
)

_MAX_PREFIXES = 8
_WHERE_A_RANK_BEGINS = 56
_LONGEST_NAME = 260


def parse_prefix(line: str, nodes: Collection[str] = ()) -> LinePrefix:
    """Peel the prefixes that launchers, loggers and collectors put before a message, in any order they are nested.

    `nodes` are the names of the allocation. When given, only they are taken for a bare ``node03: `` prefix; without it
    a lower-case word with a digit is. The outermost of several prefixes of one kind counts.
    """
    prefix = LinePrefix(line)
    for _ in range(_MAX_PREFIXES):
        if not _peel(prefix, nodes):
            break
    if prefix.rank is None and "[rank" in prefix.rest:
        _find_torn_rank(prefix)
    return prefix


def _find_torn_rank(prefix: LinePrefix) -> None:
    """Another rank's line began behind the unfinished one of a progress bar: the later message is what matters."""
    found = _TORN_RANK.search(prefix.rest)
    if found:
        prefix.rank = int(found.group(1))
        prefix.rest = prefix.rest[found.end() :]


def _peel(prefix: LinePrefix, nodes: Collection[str]) -> bool:
    """Take one prefix off. The first character decides which kinds are tried: a regular expression costs far more."""
    start = prefix.rest[:8].lstrip()[:1]
    if start == "[":
        return _peel_stamp(prefix) or _peel_rank(prefix) or _peel_mpi_rank(prefix)
    if start.isdigit():
        return _peel_syslog(prefix) or _peel_stamp(prefix) or _peel_task(prefix) or _peel_named(prefix, nodes)
    if start.isupper():
        return _peel_syslog(prefix) or _peel_stamp(prefix) or _peel_named(prefix, nodes) or _peel_service(prefix)
    if start.isalpha():
        in_front = _peel_named(prefix, nodes) or _peel_service(prefix)
        return in_front or (start in "rk" and (_peel_rank(prefix) or _peel_stamp(prefix)))
    return start == "(" and (_peel_stamp(prefix) or _peel_ray_worker(prefix))


def _peel_named(prefix: LinePrefix, nodes: Collection[str]) -> bool:
    colon = prefix.rest.find(":", 0, _LONGEST_NAME)
    if colon < 0:
        return False
    if prefix.rest[colon + 1 : colon + 2].isdigit():
        return _peel_nccl(prefix)
    return _peel_host(prefix, nodes)


def _peel_service(prefix: LinePrefix) -> bool:
    """Compose puts the container's name before each line: ``trainer-1  | ``."""
    found = _SERVICE.match(prefix.rest) if " |" in prefix.rest[:_LONGEST_NAME] else None
    if not found:
        return False
    prefix.rest = prefix.rest[found.end() :]
    return True


def _peel_rank(prefix: LinePrefix) -> bool:
    found = _RANK.match(prefix.rest) if "rank" in prefix.rest[:_WHERE_A_RANK_BEGINS].lower() else None
    if found:
        if prefix.rank is None:
            prefix.rank = int(found.group(1) or found.group(2))
        prefix.rest = prefix.rest[found.end() :]
        return True
    local = _LOCAL_RANK.match(prefix.rest)
    if local:
        prefix.rest = prefix.rest[local.end() :]
    return local is not None


def _peel_mpi_rank(prefix: LinePrefix) -> bool:
    found = _MPI_RANK.match(prefix.rest)
    if not found:
        return False
    if prefix.rank is None:
        prefix.rank = int(found.group(1))
    prefix.rest = prefix.rest[found.end() :]
    return True


def _peel_ray_worker(prefix: LinePrefix) -> bool:
    """Ray's driver puts the actor's name and process before what it forwards: ``(Trainer pid=12, ip=10.0.0.2) ``."""
    found = _RAY_WORKER.match(prefix.rest) if "pid=" in prefix.rest[:_LONGEST_NAME] else None
    if not found:
        return False
    prefix.rest = prefix.rest[found.end() :]
    return True


def _peel_syslog(prefix: LinePrefix) -> bool:
    found = _SYSLOG.match(prefix.rest) or _SYSLOG_ISO.match(prefix.rest)
    if not found:
        return False
    stamp, _ = parse_stamp(found.group(1) + " ")
    prefix.host = prefix.host or found.group(2)
    prefix.at = prefix.at or stamp
    prefix.rest = prefix.rest[found.end(2) + 1 :].removeprefix("kernel: ")
    return True


def _peel_stamp(prefix: LinePrefix) -> bool:
    stamp, length = parse_stamp(prefix.rest)
    prefix.at = prefix.at or stamp
    prefix.rest = prefix.rest[length:]
    return length > 0


def _peel_nccl(prefix: LinePrefix) -> bool:
    found = _NCCL.match(prefix.rest)
    if not found:
        return False
    prefix.host = prefix.host or found.group(1)
    if found.group(4):
        prefix.gpu = int(found.group(4))
    prefix.rest = prefix.rest[found.end() :]
    return True


def _peel_task(prefix: LinePrefix) -> bool:
    found = _TASK.match(prefix.rest)
    if not found or prefix.task is not None:
        return False
    prefix.task = int(found.group(1))
    prefix.rest = prefix.rest[found.end() :]
    return True


def _peel_host(prefix: LinePrefix, nodes: Collection[str]) -> bool:
    found = _HOST.match(prefix.rest)
    if not found or prefix.host or not _is_host(found.group(1), nodes):
        return False
    prefix.host = found.group(1)
    prefix.rest = prefix.rest[found.end() :]
    return True


def _is_host(name: str, nodes: Collection[str]) -> bool:
    if nodes:
        return name in nodes or name.split(".", 1)[0] in nodes
    return bool(_HOST_SHAPE.match(name)) and not _NOT_HOSTS.match(name)
