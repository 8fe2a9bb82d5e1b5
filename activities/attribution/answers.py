"""What services' answers are made into: bounded, redacted, and true of the attempt at least."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import re2

from recovery.model import NODE_NAME_PATTERN, NodeName
from recovery.opinion import MAX_OPINION_CHARS, MAX_OPINION_NODES, NoOpinion, Opinion
from recovery.redaction import redact

MAX_ANSWER_BYTES = 1 << 20
_CAUSE = re2.compile(r"^[A-Za-z][A-Za-z0-9_.:/ -]{0,79}$")
_SCANNED_CHARS = 8 * MAX_OPINION_CHARS
_MOST_TOLD = 3


def opinion(says: str, text: str, *, cause: str = "", **told: Any) -> Opinion:
    """Return what `says` thinks; `told` are the other fields of `Opinion`."""
    return Opinion(
        says=says,
        text=one_line(text),
        cause=cause if _CAUSE.match(cause) else "",
        received_at=datetime.now(UTC),
        **told,
    )


def no_opinion(says: str, reason: str) -> NoOpinion:
    """Return why `says` has no opinion."""
    return NoOpinion(says=says, reason=one_line(reason), received_at=datetime.now(UTC))


def nodes_of_the_attempt(
    named: Iterable[str], allocation: tuple[NodeName, ...]
) -> tuple[tuple[NodeName, ...], tuple[str, ...]]:
    """Return the nodes among `named` on which the attempt ran, and what else was named: a service may take a node from
    an old line, from another job, or from nowhere."""
    unique = tuple(dict.fromkeys(named))
    known = set(allocation)
    inside = tuple(name for name in unique if name in known)
    return inside[:MAX_OPINION_NODES], tuple(name for name in unique if name not in known)


def in_words(strangers: tuple[str, ...]) -> str:
    """Return what to tell of nodes that the attempt did not run on."""
    if not strangers:
        return ""
    names = [name if _NODE.match(name) else "?" for name in strangers[:_MOST_TOLD]]
    more = f" and {len(strangers) - _MOST_TOLD} more" if len(strangers) > _MOST_TOLD else ""
    return f"left out, the attempt did not run there: {', '.join(names)}{more}"


def one_line(text: str) -> str:
    """Return outside text as one short line without secrets."""
    plain = "".join(char if char.isprintable() else " " for char in text[:_SCANNED_CHARS])
    line = redact(" ".join(plain.split()))
    return line if len(line) <= MAX_OPINION_CHARS else f"{line[: MAX_OPINION_CHARS - 1]}…"


_NODE = re2.compile(NODE_NAME_PATTERN)
