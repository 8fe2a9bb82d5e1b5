"""Reads log files that a person hands over: plain, packed, torn, from standard input, of any size in bounded memory."""

from __future__ import annotations

import glob
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import re2

from activities.casefile import UnreadableInput
from activities.node_names import node_in
from activities.scheduler.hostlist import HostlistError, expand
from activities.unpacking import ByteStream, Unpacked
from recovery.attribution.incident import LogLine
from recovery.signatures.catalogue import Catalogue
from recovery.signatures.lines import LineSplitter
from recovery.signatures.scanner import Hit, Scanner

HEAD_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
"""Of a larger file, head and tail are read whole, and from between the lines that the catalogue knows."""
MAX_HITS_OF_ONE_KIND = 200

_BLOCK_BYTES = 1 << 20
_MOST_UNREADABLE = 0.2
"""Of a text in another encoding than UTF-8 less is unreadable, of a program or a checkpoint more."""
_UNREADABLE = dict.fromkeys((*range(7), *range(14, 27), *range(28, 32), *range(127, 160), 0xFFFD))
"""Control characters that neither terminals nor texts use, and what is no UTF-8."""
_SEARCHED_FOR_ALLOCATION = 5_000
_ALLOCATION = re2.compile(r"\b(?:SLURM_(?:JOB_|STEP_)?NODELIST|NodeList)[=:] ?([\w.,\[\]-]+)")


def expand_paths(patterns: Sequence[str]) -> list[str]:
    """Return the files that names and glob patterns stand for; ``-`` is standard input. Raises `UnreadableInput`."""
    found: list[str] = []
    for pattern in patterns:
        matches = [pattern] if pattern == "-" or Path(pattern).is_file() else sorted(glob.glob(pattern))  # noqa: PTH207
        if not matches:
            raise UnreadableInput(f"{pattern}: no such file")
        found += [match for match in matches if match not in found]
    return found


class ReadLog(NamedTuple):
    """What one file gave."""

    lines: list[LogLine]
    problem: str = ""
    """Why that is not all there is, for people; empty: it is."""


def read_log(name: str, catalogue: Catalogue, nodes: Sequence[str] = ()) -> ReadLog:
    """Read one log file (``-``: standard input), packed or not, into lines with their numbers. A file whose name holds
    the name of one of `nodes` is taken for that node's. Of a large file the lines that `catalogue` knows are
    kept. Raises `UnreadableInput`."""
    try:
        if name == "-":
            return _read(sys.stdin.buffer, catalogue, "stdin", "")
        with Path(name).open("rb") as stream:
            return _read(stream, catalogue, name, node_in(name, nodes))
    except OSError as error:
        raise UnreadableInput(f"{name}: {error.strerror or error}") from error


def allocation_in(lines: Sequence[LogLine]) -> tuple[str, ...]:
    """Return the allocation that the log itself prints, as slurmctld's or a batch script's environment does; empty when
    it does not, or not in a form that can be expanded."""
    for line in lines[:_SEARCHED_FOR_ALLOCATION]:
        found = _ALLOCATION.search(line.text)
        if found:
            try:
                return tuple(expand(found.group(1)))
            except HostlistError:
                continue
    return ()


def _read(stream: ByteStream, catalogue: Catalogue, source: str, host: str) -> ReadLog:
    plain = Unpacked(stream)
    head = b"".join(_blocks(plain, HEAD_BYTES))
    if not _is_text(head):
        return ReadLog([], f"{source}: these bytes are no text")
    lines = _bounded(plain, head, catalogue, source, host)
    return ReadLog(lines, f"{source}: {plain.problem}" if plain.problem else "")


def _is_text(head: bytes) -> bool:
    """Whether nearly all of it can be read. Zeros are no objection: a file that was cut under its writer has many."""
    text = head.replace(b"\0", b"").decode("utf-8", errors="replace")
    return len(text) - len(text.translate(_UNREADABLE)) <= len(text) * _MOST_UNREADABLE


def _bounded(stream: ByteStream, head: bytes, catalogue: Catalogue, source: str, host: str) -> list[LogLine]:
    scanner, hits, tail = _middle(stream, head, catalogue)
    texts = [*_numbered(head[: head.rfind(b"\n") + 1], 1)] if tail else [*_numbered(head, 1)]
    texts += [(hit.number, hit.text) for hit in hits]
    if tail:
        texts += _numbered(tail, scanner.number)
    return [LogLine(text=text, source=source, number=number, host=host) for number, text in texts]


def _middle(stream: ByteStream, head: bytes, catalogue: Catalogue) -> tuple[Scanner, list[Hit], bytes]:
    """Scan all but the last `TAIL_BYTES` of what follows `head`; return the scanner, its hits, and that tail."""
    scanner = Scanner(catalogue, most_of_a_kind=MAX_HITS_OF_ONE_KIND)
    hits: list[Hit] = []
    waiting: deque[bytes] = deque()
    scanner.skip(head)
    for block in _blocks(stream):
        waiting.append(block)
        if len(waiting) * _BLOCK_BYTES > TAIL_BYTES:
            hits += scanner.feed(waiting.popleft())
    return scanner, hits, scanner.pending() + b"".join(waiting)


def _blocks(stream: ByteStream, total: int | None = None) -> Iterator[bytes]:
    """Yield blocks of `_BLOCK_BYTES`, the last one of a stream shorter; `total` bytes at most."""
    count = 0
    while total is None or count < total:
        block = stream.read(_BLOCK_BYTES)
        if not block:
            return
        count += len(block)
        yield block


def _numbered(data: bytes, first: int) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of `data` with their numbers, which count ``\n`` as editors do."""
    splitter = LineSplitter()
    *ended, rest = data.split(b"\n")
    for number, part in enumerate(ended, start=first):
        for text in splitter.feed(part + b"\n"):
            yield number, text
    for text in (*splitter.feed(rest), *splitter.flush()):
        yield first + len(ended), text
