"""``scontrol -o show partition`` and ``scontrol -o show reservation`` to records.

One record a line, words of ``Key=value`` with a blank between them. ``--json`` came to these only with 23.02.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo

from activities.scheduler.hostlist import expand
from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.site import Partition, Reservation
from activities.scheduler.slurm_values import is_nothing, moment, span, text_or_empty, whole_number, words

PARTITIONS_COMMAND = ("scontrol", "--oneliner", "--all", "show", "partition")
RESERVATIONS_COMMAND = ("scontrol", "--oneliner", "--all", "show", "reservation")
_NONE_THERE = ("no partitions in the system", "no reservations in the system")
_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z:/_]{0,60})=", re.ASCII)


def read_partitions(answer: str) -> tuple[Partition, ...]:
    """Return the partitions. Raises `SchedulerUnavailable` for a record that makes no sense."""
    return tuple(_partition(fields) for fields in _records(answer, "PartitionName"))


def read_reservations(answer: str, zone: tzinfo) -> tuple[Reservation, ...]:
    """Return the reservations; `zone`: of the host where scontrol ran. Raises `SchedulerUnavailable`."""
    return tuple(_reservation(fields, zone) for fields in _records(answer, "ReservationName"))


def _records(answer: str, key: str) -> list[Mapping[str, str]]:
    lines = [line.strip() for line in answer.split("\n") if line.strip()]
    if len(lines) == 1 and lines[0].lower() in _NONE_THERE:
        return []
    if not lines or not all(line.startswith(f"{key}=") for line in lines):
        raise SchedulerUnavailable(
            f"scontrol's answer of {len(answer)} characters is no list of {key}: {answer[:80]!r}"
        )
    return [_fields(line) for line in lines]


def _fields(line: str) -> Mapping[str, str]:
    """Of a key that comes twice the first counts: free text comes after what matters."""
    keys = list(_KEY.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    fields: dict[str, str] = {}
    for key, end in zip(keys, ends, strict=True):
        fields.setdefault(key[1], line[key.end() : end])
    return fields


def _partition(fields: Mapping[str, str]) -> Partition:
    try:
        return Partition(
            name=fields["PartitionName"],
            state=fields["State"],
            is_default=fields.get("Default") == "YES",
            nodes=expand(text_or_empty(fields.get("Nodes", ""))),
            max_time=span(fields.get("MaxTime", "UNLIMITED")),
            max_nodes=whole_number(fields.get("MaxNodes", "UNLIMITED")),
            preempt_mode=text_or_empty(fields.get("PreemptMode", "")),
            grace_time=span(fields.get("GraceTime", "0")) or timedelta(),
            priority_tier=whole_number(fields.get("PriorityTier", "0")) or 0,
        )
    except (ValueError, KeyError) as error:
        raise _unreadable("partition", fields.get("PartitionName", ""), error) from error


def _reservation(fields: Mapping[str, str], zone: tzinfo) -> Reservation:
    try:
        return Reservation(
            name=fields["ReservationName"],
            starts_at=_time(fields["StartTime"], zone),
            ends_at=_time(fields["EndTime"], zone),
            nodes=expand(text_or_empty(fields.get("Nodes", ""))),
            flags=words(fields.get("Flags", "")),
            state=fields.get("State", ""),
            users=_names(fields.get("Users", "")),
            accounts=_names(fields.get("Accounts", "")),
            partition=text_or_empty(fields.get("PartitionName", "")),
        )
    except (ValueError, KeyError) as error:
        raise _unreadable("reservation", fields.get("ReservationName", ""), error) from error


def _time(text: str, zone: tzinfo) -> datetime:
    at = moment(text, zone)
    if at is None:
        raise ValueError("a reservation without a time")
    return at


def _names(text: str) -> tuple[str, ...]:
    return () if is_nothing(text) else tuple(text.split(","))


def _unreadable(kind: str, name: str, error: Exception) -> SchedulerUnavailable:
    return SchedulerUnavailable(f"scontrol's answer for {kind} {name[:60]!r} cannot be read: {error}")
