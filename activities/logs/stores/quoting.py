"""Values from outside as strings of a query: whatever they hold, it stays a value."""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_REGEX_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


def quoted(value: str) -> str:
    """Return `value` as a string literal of LogQL and LogsQL, which both read Go's: nothing in it ends the string."""
    return '"' + "".join(_ESCAPES.get(char) or (char if char >= " " else f"\\x{ord(char):02x}") for char in value) + '"'


def any_of(values: Sequence[str]) -> str:
    """Return an RE2 pattern, as such a literal, that matches these values and no others where it is anchored."""
    return quoted("|".join("".join(f"\\{c}" if c in _REGEX_SPECIAL else c for c in value) for value in values))
