"""Finds the lines that the catalogue knows in logs of any size: raw bytes in, known lines out, in constant memory.

One automaton over all patterns runs over whole blocks; only lines in which it saw something are looked at one by one.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recovery.signatures.catalogue import MAX_MATCHED_CHARS, Catalogue, Signature
from recovery.signatures.engines import ANY_PATTERN, Engine, best_engine
from recovery.signatures.lines import MAX_LINE_BYTES, clean

_WORTH_REBUILDING = 50_000
"""Matches that were thrown away cost about as much as building the automaton without their patterns."""


class Hit(NamedTuple):
    """One line that the catalogue knows."""

    number: int
    """Counted by line feeds from 1, as editors do."""
    offset: int
    """Of its first byte."""
    text: str
    signature: Signature
    """What `Catalogue.match` gives for `text`."""


class Scanner:
    """Scans a growing log. Feed it what was read; nothing is read twice.

    With `most_of_a_kind`, only so many lines of each signature are returned, and a flood of one costs next to nothing.
    """

    def __init__(
        self, catalogue: Catalogue, engine: Engine | None = None, *, most_of_a_kind: int | None = None
    ) -> None:
        self._catalogue = catalogue
        self._signatures = tuple(catalogue)
        self._index_of = {signature.id: index for index, signature in enumerate(self._signatures)}
        self._stays_in_line = tuple(_stays_in_line(signature.pattern) for signature in self._signatures)
        self._given_engine = engine
        self._most_of_a_kind = most_of_a_kind
        self._seen: Counter[int] = Counter()
        self._full: frozenset[int] = frozenset()
        self._left_out: frozenset[int] = frozenset()
        self._thrown_away = 0
        self._tail = b""
        self._number = 1
        self._offset = 0

    @functools.cached_property
    def _engine(self) -> Engine:
        """Built once there is something to scan: that takes a fifth of a second."""
        return self._given_engine or best_engine(self._catalogue)

    @property
    def number(self) -> int:
        """The number of the line that the next byte not yet scanned belongs to."""
        return self._number

    def feed(self, data: bytes) -> list[Hit]:
        """Take the next bytes and return the hits in the lines that are now complete."""
        buffer = self._tail + data
        end = buffer.rfind(b"\n") + 1
        hits = list(self._scan(buffer[:end])) if end else []
        self._tail = buffer[end:]
        self._shorten_tail()
        self._leave_out_what_is_full()
        return hits

    def skip(self, data: bytes) -> None:
        """Take bytes at a log's start that another reader has read: complete lines count, the rest is pending."""
        end = data.rfind(b"\n") + 1
        self._number += data.count(b"\n")
        self._offset += end
        self._tail = data[end:]

    def pending(self) -> bytes:
        """Return and forget the bytes of the line that has not ended yet, for another reader to take over."""
        tail, self._tail = self._tail, b""
        return tail

    def flush(self) -> list[Hit]:
        """Return the hit in the last line, which no line end closed."""
        tail = self.pending()
        return list(self._scan(tail + b"\n")) if tail else []

    def _shorten_tail(self) -> None:
        """Of a line without an end only the start is kept, as `LineSplitter` does."""
        excess = len(self._tail) - MAX_LINE_BYTES
        if excess > 0:
            self._tail = self._tail[:MAX_LINE_BYTES]
            self._offset += excess

    def _scan(self, block: bytes) -> Iterator[Hit]:
        counted_to, number = 0, self._number
        for start, stop, index in _matched_lines(block, self._engine.ends(block)):
            if index in self._full:
                self._thrown_away += 1
                continue
            number += block.count(b"\n", counted_to, start)
            counted_to = start
            for text, known in self._known(block[start:stop], index):
                if self._has_room_for(known):
                    yield Hit(number, self._offset + start, text, self._signatures[known])
        self._number = number + block.count(b"\n", counted_to)
        self._offset += len(block)

    def _known(self, line: bytes, index: int) -> Iterator[tuple[str, int]]:
        """Yield the texts in `line` that the catalogue knows, with the indexes of their signatures. `index` is that of
        the first pattern that the engine saw in the line; a pattern left out may come before it."""
        if index != ANY_PATTERN and not self._left_out and self._stays_in_line[index] and _is_plain(line):
            yield line.decode("ascii"), index
            return
        for piece in line[:MAX_LINE_BYTES].split(b"\r"):
            text = clean(piece.decode("utf-8", errors="replace"))
            signature = self._catalogue.recognise(text)
            if signature:
                yield text, self._index_of[signature.id]

    def _has_room_for(self, index: int) -> bool:
        if self._most_of_a_kind is None:
            return True
        if index in self._full:
            self._thrown_away += 1
            return False
        self._seen[index] += 1
        if self._seen[index] == self._most_of_a_kind:
            self._full |= {index}
        return True

    def _leave_out_what_is_full(self) -> None:
        if self._thrown_away >= _WORTH_REBUILDING and self._left_out != self._full:
            self._thrown_away = 0
            if len(self._full) < len(self._signatures):
                self._engine = self._engine.without(self._full)
                self._left_out = self._full


def _matched_lines(block: bytes, ends: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield where each line with a match starts and stops in `block`, and the first pattern, in catalogue order, that
    the engine saw in it. A match may take in the line's end."""
    start, stop, first = 0, -2, ANY_PATTERN
    for end, index in ends:
        if end > stop + 1:
            if stop >= 0:
                yield start, stop, first
            start = block.rfind(b"\n", 0, max(end - 1, 0)) + 1
            stop, first = block.find(b"\n", start), index
        elif index < first:
            first = index
    if stop >= 0:
        yield start, stop, first


def _is_plain(line: bytes) -> bool:
    """Whether the line's bytes are its text: then what the automaton saw is what matching would see."""
    return (
        len(line) < MAX_MATCHED_CHARS
        and line.isascii()
        and not (b"\r" in line or b"\x1b" in line or b"\0" in line or line[-1:].decode().isspace())
    )


def _stays_in_line(pattern: str) -> bool:
    """Whether a match cannot reach over a line end: nothing in the pattern accepts one."""
    return not any(part in pattern for part in (r"\s", r"\W", r"\D"))
