"""Values as Slurm's commands print them: times, spans of time, lists, states, exit codes.

Each is bounded and says "nothing" for the words that Slurm has for it. What is not understood is a `ValueError`, or
where a newer Slurm may know more words than this module, kept as it is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from activities.scheduler.protocol import JobFlag, JobState

_NOTHING = frozenset({"", "(null)", "n/a", "none", "unknown", "none assigned", "invalid", "not_set", "(none)"})
_NO_LIMIT = frozenset({"unlimited", "infinite", "partition_limit"})
_SPAN = re.compile(r"(?:(\d{1,7})-)?(?:(\d{1,7}):)?(\d{1,7}):(\d{1,2})(?:\.\d{1,6})?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,12}) ?(usec|msec|sec|min|hours?|days?)?", re.ASCII)
_UNITS = {"usec": 1e-6, "msec": 1e-3, "sec": 1, "min": 60, "hour": 3600, "hours": 3600, "day": 86400, "days": 86400}
_STATES = {state.value: state for state in JobState} | {"REVOKED": JobState.CANCELLED}
_FLAGS = {flag.value: flag for flag in JobFlag}
_EXIT = re.compile(r"(\d{1,5}):(\d{1,3})", re.ASCII)
_CANCELLED_BY = re.compile(r"CANCELLED by (\S{1,64})")


def is_nothing(text: str) -> bool:
    """Whether `text` is one of Slurm's words for "there is none" or "nobody knows"."""
    return text.strip().lower() in _NOTHING


def text_or_empty(text: str) -> str:
    """Return `text`, empty where it is one of Slurm's words for nothing."""
    return "" if is_nothing(text) else text


def moment(text: str, zone: tzinfo) -> datetime | None:
    """Return the time that `text` tells in UTC; None for Slurm's words for no time. `zone`: of the host where the
    command ran, for the form without an offset; with SLURM_TIME_FORMAT=%s Slurm prints seconds since 1970."""
    if is_nothing(text):
        return None
    if text.isascii() and text.isdigit() and len(text) <= 11:
        return datetime.fromtimestamp(int(text), UTC) if int(text) else None
    told = datetime.fromisoformat(text)
    try:
        return (told if told.tzinfo else told.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text[:40]!r} is no time that can be told in UTC") from error


def span(text: str) -> timedelta | None:
    """Return a span such as ``3-00:00:00``, ``48:13``, ``5:00``, ``300 sec`` or ``60`` (seconds); None for no limit."""
    text = text.strip()
    if text.lower() in _NO_LIMIT:
        return None
    if match := _SPAN.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if match := _SECONDS.fullmatch(text):
        return timedelta(seconds=int(match[1]) * _UNITS[match[2] or "sec"])
    raise ValueError(f"{text[:40]!r} is no span of time")


def whole_number(text: str) -> int | None:
    """Return a number; None for no limit. Raises `ValueError`."""
    if text.strip().lower() in _NO_LIMIT:
        return None
    if not re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII):
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def words(text: str, separator: str = ",") -> frozenset[str]:
    """Return the words of a list; empty for Slurm's words for nothing."""
    return frozenset(word.strip() for word in text.split(separator) if not is_nothing(word))


class Told(NamedTuple):
    """What a text such as ``CANCELLED by 1000`` says of a job's state."""

    state: JobState
    flags: frozenset[JobFlag]
    cancelled_by: str


def state_told(text: str) -> Told:
    """Return the state that sacct's or squeue's word tells. A word that is not known, and one that is a flag without
    the state beneath it, is UNKNOWN: never failed."""
    cancelled = _CANCELLED_BY.fullmatch(text)
    parts = ["CANCELLED"] if cancelled else [part.strip() for part in text.upper().split("+")]
    states = [_STATES[part] for part in parts if part in _STATES]
    return Told(
        state=states[0] if states else JobState.UNKNOWN,
        flags=frozenset(_FLAGS[part] for part in parts if part in _FLAGS),
        cancelled_by=cancelled[1] if cancelled else "",
    )


def exit_told(text: str) -> tuple[int, int]:
    """Return exit code and signal of ``code:signal``, zeros where nothing is told."""
    if is_nothing(text):
        return 0, 0
    match = _EXIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no exit code")
    return int(match[1]), int(match[2])
