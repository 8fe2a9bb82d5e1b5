"""What a check of the doctor comes to."""

from __future__ import annotations

from enum import StrEnum

from recovery.model import Value
from recovery.redaction import redact


class Finding(StrEnum):
    """How a thing stands."""

    OK = "ok"
    WARNING = "warning"
    """relight works, and less well than it could."""
    FAILED = "failed"
    """relight can't do what its settings ask of it."""
    UNKNOWN = "unknown"
    """Nobody answered the question."""


class Check(Value):
    """One thing that was looked at."""

    name: str
    finding: Finding
    says: str
    """What is so."""
    remedy: str = ""
    """What to do; empty where nothing has to be done."""


def ok(name: str, says: str) -> Check:
    """Return that all is well."""
    return _check(name, Finding.OK, says)


def warning(name: str, says: str, remedy: str) -> Check:
    """Return that something could be better."""
    return _check(name, Finding.WARNING, says, remedy)


def failed(name: str, says: str, remedy: str) -> Check:
    """Return that something does not work."""
    return _check(name, Finding.FAILED, says, remedy)


def unknown(name: str, says: str, remedy: str = "") -> Check:
    """Return that nobody could say."""
    return _check(name, Finding.UNKNOWN, says, remedy)


def _check(name: str, finding: Finding, says: str, remedy: str = "") -> Check:
    """What is said may quote labels, answers and commands of the outside world."""
    return Check(name=name, finding=finding, says=redact(says), remedy=redact(remedy))
