"""The time stamps that log lines start with, in every form that the software we read uses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import re2

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_ISO = re2.compile(
    r"^\s{0,2}[\[(]?(\d{4})-(\d{2})-(\d{2})[T _](\d{2}):(\d{2}):(\d{2})"
    r"(?:[.,](\d{1,9}))?(Z|[+-]\d{2}:?\d{2})?[\])]?(?:,? |:|$)"
)
_SLASHED = re2.compile(r"^\[?(\d{4})/(\d{2})/(\d{2})[ T-](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?\]?(?: |:)")
_SYSLOG = re2.compile(r"^([A-Z][a-z]{2}) ([ \d]\d) (\d{2}):(\d{2}):(\d{2}) ")
_DMESG_CLOCK = re2.compile(r"^\[(?:[A-Z][a-z]{2}) ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})\] ")
_FABRIC = re2.compile(r"^\[([A-Z][a-z]{2}) (\d{1,2}) (\d{4}) (\d{2}):(\d{2}):(\d{2})\] ")
_GLOG = re2.compile(r"^\[?[IWEF](\d{1,2})(\d{2}) (\d{2}):(\d{2}):(\d{2})\.(\d{1,9}) ")
_DMESG_UPTIME = re2.compile(r"^(?:kernel: )?\[ {0,6}\+?\d{1,9}\.\d{3,6}\] ")

_Form = tuple[Any, Callable[[Any], datetime | None]]

YEAR_UNKNOWN = 1900
"""The year of a stamp that names none; `with_year` sets it."""


def parse_stamp(line: str) -> tuple[datetime | None, int]:
    """Return the time at the very start of `line` and how many characters it takes.

    The time is without zone where the text names none, and has the year `YEAR_UNKNOWN` where the text names none. A
    stamp that is recognised but tells no time of day (dmesg's uptime), or an impossible one, gives (None, length).
    """
    for expression, read in _forms_that_start_like(line):
        found = expression.match(line)
        if found:
            return read(found), found.end()
    return None, 0


def with_year(stamp: datetime, near: datetime | None) -> datetime | None:
    """Return `stamp` with a zone and, if it has no year, with the one closest to `near`; None without `near`."""
    if stamp.year == YEAR_UNKNOWN:
        if near is None:
            return None
        candidates = [_replace_year(stamp, near.year + delta) for delta in (-1, 0, 1)]
        stamp = min((c for c in candidates if c), key=lambda c: abs(_aware(c) - _aware(near)), default=stamp)
    return _aware(stamp)


def _aware(stamp: datetime) -> datetime:
    return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)


def _replace_year(stamp: datetime, year: int) -> datetime | None:
    try:
        return stamp.replace(year=year)
    except ValueError:
        return None


def _time(year: int, month: int, day: int, clock: tuple[str, str, str], fraction: str | None) -> datetime | None:
    hour, minute, second = (int(part) for part in clock)
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, microsecond)  # noqa: DTZ001 - the zone is not known here
    except ValueError:
        return None


def _from_iso(found: Any) -> datetime | None:
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    stamp = _time(int(year), int(month), int(day), (hour, minute, second), fraction)
    return stamp.replace(tzinfo=_zone(zone)) if stamp and zone else stamp


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * min(timedelta(hours=int(text[1:3]), minutes=int(text[-2:])), timedelta(hours=23)))


def _from_slashed(found: Any) -> datetime | None:
    year, month, day, hour, minute, second, fraction = found.groups()
    return _time(int(year), int(month), int(day), (hour, minute, second), fraction)


def _from_syslog(found: Any) -> datetime | None:
    month, day, hour, minute, second = found.groups()
    return _named_month(month, day, YEAR_UNKNOWN, (hour, minute, second))


def _from_dmesg_clock(found: Any) -> datetime | None:
    month, day, hour, minute, second, year = found.groups()
    return _named_month(month, day, int(year), (hour, minute, second))


def _from_fabric(found: Any) -> datetime | None:
    month, day, year, hour, minute, second = found.groups()
    return _named_month(month, day, int(year), (hour, minute, second))


def _named_month(month: str, day: str, year: int, clock: tuple[str, str, str]) -> datetime | None:
    return _time(year, _MONTHS.index(month) + 1, int(day), clock, None) if month in _MONTHS else None


def _from_glog(found: Any) -> datetime | None:
    month, day, hour, minute, second, fraction = found.groups()
    return _time(YEAR_UNKNOWN, int(month), int(day), (hour, minute, second), fraction)


def _no_time(_: Any) -> None:
    return None


_DATES = ((_ISO, _from_iso), (_SLASHED, _from_slashed))
_LETTERED = ((_GLOG, _from_glog), (_SYSLOG, _from_syslog))
_IN_BRACKETS = ((_GLOG, _from_glog), (_DMESG_CLOCK, _from_dmesg_clock), (_FABRIC, _from_fabric))
_UPTIME = ((_DMESG_UPTIME, _no_time),)


def _forms_that_start_like(line: str) -> tuple[_Form, ...]:
    """The first characters rule most forms out, at a fraction of a regular expression's cost."""
    start = line[:4].lstrip()
    first, second = start[:1], start[1:2]
    if first == "[":
        if second.isdigit():
            return (*_DATES, *_UPTIME) if "." in line[:14] else _DATES
        return _UPTIME if second in (" ", "+") else _IN_BRACKETS if second.isalpha() else ()
    if first.isdigit() or first == "(":
        return _DATES
    if first.isupper():
        return _LETTERED
    return _UPTIME if first == "k" else ()
