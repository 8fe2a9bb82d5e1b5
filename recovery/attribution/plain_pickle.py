"""Reads the plain data out of a pickle, and nothing else.

A pickle is a program for a stack machine, and the ones read here come from outside. This reader knows only the
instructions that build numbers, text, lists, tuples and dicts; anything that could look up a name, call something or
set an attribute is refused before it runs. Python's own C reader, with every global refused, would still let a few
bytes allocate gigabytes through a high memo index.
"""

from __future__ import annotations

import itertools
import pickletools
from collections.abc import Callable
from typing import Any

MAX_PICKLE_BYTES = 16 << 20
MAX_INSTRUCTIONS = 4_000_000
"""Bounds the memory: one byte can make an empty list of some dozen."""


class NotPlainData(ValueError):
    """The pickle is broken, too large, or more than data."""


_MARK = object()
_PUSHED = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING"}
    | {"SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE8"}
)
_CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], object]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_SIZED_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset({"PROTO", "FRAME"})


def load_plain(data: bytes) -> Any:
    """Return the data in the pickle `data`. Raises `NotPlainData` for everything that is not plain data."""
    if len(data) > MAX_PICKLE_BYTES:
        raise NotPlainData(f"the pickle has {len(data)} bytes; {MAX_PICKLE_BYTES} is the most that is read")
    try:
        return _run(data)
    except NotPlainData:
        raise
    # Python warns of a strange escape in text that is refused anyway, and a warning may be an error.
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, DeprecationWarning) as error:
        raise NotPlainData(f"the pickle is broken: {str(error)[:200]}") from error


def _run(data: bytes) -> Any:
    machine = _Machine()
    for opcode, argument, position in itertools.islice(pickletools.genops(data), MAX_INSTRUCTIONS):
        if opcode.name == "STOP":
            return machine.pop()
        machine.run(opcode.name, argument, position)
    raise NotPlainData(f"the pickle has no end, or more than {MAX_INSTRUCTIONS} instructions")


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self._stack.pop()

    def run(self, name: str, argument: Any, position: int | None) -> None:
        stack = self._stack
        if name in _PUSHED:
            stack.append(argument)
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name not in _IGNORED:
            self._build(name, position)

    def _build(self, name: str, position: int | None) -> None:
        stack = self._stack
        if name in _SIZED_TUPLES:
            size = _SIZED_TUPLES[name]
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name == "APPEND":
            value = stack.pop()
            self._top(list).append(value)
        elif name == "APPENDS":
            values = self._since_mark()
            self._top(list).extend(values)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._put([key, value])
        elif name == "SETITEMS":
            self._put(self._since_mark())
        else:
            raise NotPlainData(f"the pickle is more than data: instruction {name} at byte {position}")

    def _put(self, items: list[Any]) -> None:
        """Keys are text or numbers: hashing a deeply shared tuple takes for ever."""
        keys, values = items[::2], items[1::2]
        if not all(isinstance(key, (str, int, float)) for key in keys):
            raise NotPlainData("the pickle is broken: a key that is neither text nor a number")
        self._top(dict).update(zip(keys, values, strict=True))

    def _since_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        values.reverse()
        return values

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise NotPlainData("the pickle is broken: items for something that holds none")
        return self._stack[-1]
