"""The automata that run over whole blocks of a log: all of a catalogue's patterns at once, in linear time.

Hyperscan is several times as fast as RE2 and has wheels for Linux; RE2 runs everywhere. Both find the same lines.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import re2

from recovery.signatures.catalogue import Catalogue

ANY_PATTERN = -1

_NOTHING: frozenset[int] = frozenset()
_AUTOMATON_BYTES = 1 << 30
_GROUP_NAME = re2.compile(r"\(\?P<\w+>")


class Engine(Protocol):
    """Finds where patterns end in a block."""

    def ends(self, block: bytes) -> Iterable[tuple[int, int]]:
        """Return (offset behind a match, index of its pattern or `ANY_PATTERN`), ordered, at least one for each line
        that a pattern matches."""
        ...

    def without(self, indexes: frozenset[int]) -> Engine:
        """Return an engine that leaves out the patterns `indexes`, not all of them; the others keep their indexes."""
        ...


class HyperscanEngine:
    """All patterns in one Hyperscan database. Each thread needs an engine of its own."""

    def __init__(self, patterns: Sequence[bytes], left_out: frozenset[int] = _NOTHING) -> None:
        self._patterns = tuple(patterns)
        self._database = _database(self._patterns, left_out)
        self._scratch = importlib.import_module("hyperscan").Scratch(self._database)

    def ends(self, block: bytes) -> Iterable[tuple[int, int]]:
        """Return the ends of all matches with their patterns."""
        found: list[tuple[int, int]] = []
        self._database.scan(
            block,
            match_event_handler=lambda index, _from, end, _flags, _: found.append((end, index)),
            scratch=self._scratch,
        )
        return sorted(found)

    def without(self, indexes: frozenset[int]) -> Engine:
        """Return an engine that leaves out the patterns `indexes`."""
        return HyperscanEngine(self._patterns, indexes)


@functools.lru_cache(maxsize=2)
def _database(patterns: tuple[bytes, ...], left_out: frozenset[int]) -> Any:
    """Compile, which takes a fifth of a second. Kept, for the next of many files."""
    hyperscan: Any = importlib.import_module("hyperscan")
    kept = [index for index in range(len(patterns)) if index not in left_out]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[patterns[index] for index in kept],
        ids=kept,
        elements=len(kept),
        flags=[hyperscan.HS_FLAG_MULTILINE] * len(kept),
    )
    return database


class Re2Engine:
    """All patterns in one RE2 alternation."""

    def __init__(self, patterns: Sequence[bytes], left_out: frozenset[int] = _NOTHING) -> None:
        options = re2.Options()
        options.max_mem = _AUTOMATON_BYTES
        options.log_errors = False
        options.never_nl = True
        options.never_capture = True
        options.encoding = re2.Options.Encoding.LATIN1
        self._patterns = tuple(patterns)
        kept = [pattern for index, pattern in enumerate(self._patterns) if index not in left_out]
        self._any = re2.compile(b"(?m)" + b"|".join(b"(?:" + pattern + b")" for pattern in kept), options)

    def ends(self, block: bytes) -> Iterable[tuple[int, int]]:
        """Yield the end of the first match in each line that has one."""
        position = 0
        while found := self._any.search(block, position):
            end: int = found.end()
            yield end, ANY_PATTERN
            position = block.find(b"\n", max(end - 1, position)) + 1
            if position == 0:
                return

    def without(self, indexes: frozenset[int]) -> Engine:
        """Return an engine that leaves out the patterns `indexes`."""
        return Re2Engine(self._patterns, indexes)


def best_engine(catalogue: Catalogue) -> Engine:
    """Return Hyperscan's engine where it is installed, else RE2's."""
    try:
        return HyperscanEngine(_block_patterns(catalogue))
    except ImportError:
        return re2_engine(catalogue)


def re2_engine(catalogue: Catalogue) -> Engine:
    """Return RE2's engine."""
    return Re2Engine(_block_patterns(catalogue))


def _block_patterns(catalogue: Catalogue) -> list[bytes]:
    """Return the patterns without group names, and with negated classes that do not reach over a line end."""
    return [_GROUP_NAME.sub("(", signature.pattern).replace("[^", "[^\\n").encode() for signature in catalogue]
