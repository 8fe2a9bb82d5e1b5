"""Slurm's host lists: ``node[01-03,07],gpu-a`` to names, and names back to such a list.

The grammar, both ways: items apart by commas; in an item any number of brackets, each with numbers and ranges apart by
commas. A range counts up from its first number, padded with zeros to the first number's width, as Slurm does. Several
brackets multiply, the last one turning fastest. Everything is bounded before it is expanded.

``scontrol show hostnames`` of 22.05 agrees; like it, this knows no steps in a range. Why no library: ClusterShell 1.10
loses the order, which is the ranks', takes ``[1-9/2]``, ``!``, ``&`` and this host's own ``@groups`` for part of the
language, refuses ``[01-3]``, and works at ``[0-9999999]`` for minutes; python-hostlist 2.3 reads Slurm's grammar, drops
repeated names, checks none of them, and is under the GPL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from math import prod
from typing import NamedTuple

from recovery.model import NODE_NAME_PATTERN, NodeName

MAX_NODES = 100_000
MAX_CHARS = 4_000_000
MAX_DIGITS = 18

_NODE_NAME = re.compile(NODE_NAME_PATTERN)


class HostlistError(ValueError):
    """The text is no host list, or one too large to be expanded; the message quotes where it went wrong."""


class _Numbers(NamedTuple):
    """One range in brackets, such as ``07-12``; a single number is a range of one."""

    first: int
    last: int
    width: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def texts(self) -> Iterator[str]:
        return map(f"%0{self.width}d".__mod__, range(self.first, self.last + 1))


def expand(text: str) -> tuple[NodeName, ...]:
    """Return the names of a host list in the list's order. An empty text is an empty list. Raises `HostlistError`."""
    if len(text) > MAX_CHARS:
        raise HostlistError(f"a host list of {len(text)} characters is longer than {MAX_CHARS}")
    names: list[NodeName] = []
    for item in _items(text):
        parts = _parts(item)
        count = prod(sum(map(len, part)) for part in parts if isinstance(part, list))
        if len(names) + count > MAX_NODES:
            raise HostlistError(f"the host list names more than {MAX_NODES} nodes, at {_quoted(item)}")
        _check_names(parts)
        names.extend(_names(parts))
    return tuple(names)


def compress(names: Iterable[NodeName]) -> str:
    """Return a host list that expands to exactly `names`, in their order. Neighbours that differ in their last number
    only share a bracket."""
    stems = (_stem(name) for name in names)
    return ",".join(
        _bracketed(prefix, [digits for _, digits, _ in group], suffix)
        for (prefix, _, suffix), group in groupby(stems, key=lambda stem: (stem[0], len(stem[1]) > 0, stem[2]))
    )


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    if not text:
        return
    start, inside = 0, False
    for index, char in enumerate(text):
        if char in "[]":
            if inside == (char == "["):
                raise HostlistError(f"unbalanced brackets in {_quoted(text[start:])}")
            inside = not inside
        elif char == "," and not inside:
            yield text[start:index]
            start = index + 1
    if inside:
        raise HostlistError(f"unbalanced brackets in {_quoted(text[start:])}")
    yield text[start:]


def _parts(item: str) -> list[str | list[_Numbers]]:
    """Take an item apart into literal texts and brackets; brackets are balanced already."""
    literal, *rest = item.split("[")
    parts: list[str | list[_Numbers]] = [literal]
    for piece in rest:
        ranges, _, literal = piece.partition("]")
        parts += [[_numbers(one) for one in ranges.split(",")], literal]
    return parts


def _numbers(text: str) -> _Numbers:
    first, dash, last = text.partition("-")
    if not _is_number(first) or (dash and not _is_number(last)):
        raise HostlistError(f"{_quoted(text)} is no number and no range of numbers")
    numbers = _Numbers(int(first), int(last or first), len(first))
    if numbers.last < numbers.first:
        raise HostlistError(f"the range {_quoted(text)} runs backwards")
    return numbers


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _check_names(parts: list[str | list[_Numbers]]) -> None:
    """Names of one item differ in digits alone: when the longest is a node name, all are."""
    longest = "".join(part if isinstance(part, str) else max(map(_longest, part), key=len) for part in parts)
    if not _NODE_NAME.fullmatch(longest):
        raise HostlistError(f"{_quoted(longest)} is not a node name")


def _longest(numbers: _Numbers) -> str:
    return f"{numbers.last:0{numbers.width}}"


def _names(parts: list[str | list[_Numbers]]) -> Iterable[NodeName]:
    if len(parts) == 1:
        return map(str, parts)
    choices = [[part] if isinstance(part, str) else [text for one in part for text in one.texts()] for part in parts]
    return map("".join, product(*choices))


def _stem(name: NodeName) -> tuple[str, str, str]:
    """Split a name around its last number; without one, or with one too long to count, all of it is prefix."""
    match = re.fullmatch(r"(.*?)([0-9]+)([^0-9]*)", name)
    if match is None or len(match[2]) > MAX_DIGITS:
        return name, "", ""
    return match[1], match[2], match[3]


def _bracketed(prefix: str, numbers: list[str], suffix: str) -> str:
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}{suffix}"
    if not numbers[0]:
        return ",".join(f"{prefix}{suffix}" for _ in numbers)
    return f"{prefix}[{','.join(_ranges(numbers))}]{suffix}"


def _ranges(numbers: list[str]) -> Iterator[str]:
    """Fold numbers that count up by one into ranges, where the first one's width gives all of them."""
    first = last = numbers[0]
    for number in [*numbers[1:], ""]:
        if number == f"{int(last) + 1:0{len(first)}}":
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
