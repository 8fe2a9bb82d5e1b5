"""Reads what PyTorch's NCCL flight recorder wrote for one rank. The dumps come from outside and are pickles, or JSON.

Format: PyTorch from 2.3 on, ``torch/csrc/distributed/c10d/FlightRecorder``. The first releases have no ``pg_status``
and call the sequence number ``seq_id``; the JSON form writes the numbers of ``pg_status`` as text. What is missing or
of another type reads as unknown; what would be too much is cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import re2
from pydantic import Field

from recovery.attribution.plain_pickle import MAX_PICKLE_BYTES, NotPlainData, load_plain
from recovery.model import Value

MAX_ENTRIES = 20_000
MAX_RANKS = 65_536
MAX_GROUPS = 4_096

_MAX_RANKS_CHARS = 8 * MAX_RANKS
_NUMBERS = re2.compile(rb"[0-9]{1,9}")
_PEER = re2.compile(r"(send|recv) [0-9]{1,6}(?:->|<-)([0-9]{1,6})")


class Operation(Value):
    """One operation that a rank enqueued and did not see done."""

    group: str
    """The process group's name."""
    role: str
    """The process group's description, such as ``TENSOR_MODEL_PARALLEL_GROUP``: the same for groups of one kind."""
    sequence: int
    """Counted by all members of a group alike; for send and recv by each rank alone."""
    name: str
    started: bool
    elements: int = -1
    """How many numbers this rank puts in; -1 when unknown."""
    peer: int | None = None
    """For send and recv: the other's place in the group."""
    sends: bool = False


class GroupStatus(Value):
    """How far a rank is in one process group: sequence numbers."""

    enqueued: int
    completed: int


class Dump(Value):
    """What one rank's recorder wrote."""

    rank: int = Field(ge=0, lt=MAX_RANKS)
    groups: Mapping[str, tuple[int, ...]]
    """The global ranks of each process group, in group order, by its name."""
    status: Mapping[str, GroupStatus]
    knows_all_groups: bool = False
    """Whether a group without a status was never used by this rank; else its status may just be unknown."""
    pending: tuple[Operation, ...]
    """What is enqueued and not done, oldest first."""
    point_to_point: frozenset[str]
    """The groups in which this rank sends or receives."""
    notes_starts: bool
    """Whether the recorder notes when operations start (``TORCH_NCCL_ENABLE_TIMING``)."""


def load_dump(data: bytes, rank: int) -> Dump:
    """Read the dump of `rank`. Raises `NotPlainData` when it is broken, too large, or more than data."""
    document = _load(data)
    if not isinstance(document, dict):
        raise NotPlainData(f"the dump of rank {rank} is a {type(document).__name__}, not a dict")
    entries = [entry for entry in _list(document.get("entries"))[-MAX_ENTRIES:] if isinstance(entry, dict)]
    configs = list(_dict(document.get("pg_config")).items())[:MAX_GROUPS]
    groups = {_text(name): _ranks(_dict(config).get("ranks")) for name, config in configs}
    noted = _dict(document.get("pg_status"))
    status = _status(noted, entries, groups) if noted else _status_by_entries(entries)
    return Dump(
        rank=rank,
        groups=groups,
        status=status,
        knows_all_groups=len(status) == len(noted) if noted else len(entries) < MAX_ENTRIES,
        pending=tuple(_operation(entry) for entry in entries if not _is_done(entry)),
        point_to_point=frozenset(_group_of(entry)[0] for entry in entries if entry.get("is_p2p")),
        notes_starts=any(entry.get("time_discovered_started_ns") is not None for entry in entries),
    )


def _load(data: bytes) -> Any:
    if data.lstrip()[:1] != b"{":
        return load_plain(data)
    if len(data) > MAX_PICKLE_BYTES:
        raise NotPlainData(f"the dump has {len(data)} bytes; {MAX_PICKLE_BYTES} is the most that is read")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotPlainData(f"the dump is not JSON: {str(error)[:200]}") from error


def _dict(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    """Text that can be stored: without the halves of characters that a pickle may hold."""
    return str(value)[:200].encode("utf-8", "replace").decode() if isinstance(value, (str, int)) else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _whole(value: object, default: int = -1) -> int:
    if isinstance(value, str) and len(value) <= 18 and _is_number(value):
        return int(value)
    return value if isinstance(value, int) and abs(value) < 1 << 62 else default


def _ranks(value: object) -> tuple[int, ...]:
    """PyTorch writes the ranks as text, ``[0, 1, 2]``."""
    if isinstance(value, str):
        value = [int(word) for word in _NUMBERS.findall(value[:_MAX_RANKS_CHARS].encode("utf-8", "replace"))]
    return tuple(rank for rank in _list(value)[:MAX_RANKS] if isinstance(rank, int) and 0 <= rank < MAX_RANKS)


def _is_done(entry: Mapping[Any, Any]) -> bool:
    return entry.get("state") == "completed" or entry.get("retired") is True


def _group_of(entry: Mapping[Any, Any]) -> tuple[str, str]:
    """Return the name and the description of an entry's process group."""
    group = entry.get("process_group")
    name, role = group[:2] if isinstance(group, (tuple, list)) and len(group) > 1 else ("", "")
    return _text(name), _text(role)


def _sequence(entry: Mapping[Any, Any]) -> int:
    if entry.get("is_p2p") and "p2p_seq_id" in entry:
        return _whole(entry["p2p_seq_id"])
    return _whole(entry.get("collective_seq_id", entry.get("seq_id")))


def _elements(sizes: object) -> int:
    """Return how many numbers tensors of these sizes hold together."""
    shapes = [shape for shape in _list(sizes) if isinstance(shape, list) and all(isinstance(n, int) for n in shape)]
    return min(sum(math.prod(shape[:8]) for shape in shapes[:64]), 1 << 62) if shapes else -1


def _operation(entry: Mapping[Any, Any]) -> Operation:
    group, role = _group_of(entry)
    name = _text(entry.get("profiling_name")).removeprefix("nccl:")
    half = _PEER.search(name) if entry.get("is_p2p") else None
    return Operation(
        group=group,
        role=role,
        sequence=_sequence(entry),
        name=name,
        started=entry.get("state") == "started",
        elements=_elements(entry.get("input_sizes")),
        peer=int(half.group(2)) if half else None,
        sends=half is not None and half.group(1) == "send",
    )


def _status(
    status: Mapping[Any, Any], entries: Sequence[Mapping[Any, Any]], groups: Mapping[str, tuple[int, ...]]
) -> dict[str, GroupStatus]:
    """Return the status by group name. PyTorch keeps it under a local number that only the entries connect to names;
    groups and numbers are both given out in order, which connects the rest where the counts agree."""
    names = {_text(entry.get("pg_id")): _group_of(entry)[0] for entry in entries}
    if len(status) == len(groups) and all(_is_number(_text(key)) for key in [*status, *groups]):
        in_order = dict(zip(sorted(map(_text, status), key=int), sorted(groups, key=int), strict=True))
        if all(in_order.get(number) == name for number, name in names.items()):
            names = in_order
    return {
        names[_text(number)]: GroupStatus(
            enqueued=_whole(_dict(counts).get("last_enqueued_collective")),
            completed=_whole(_dict(counts).get("last_completed_collective")),
        )
        for number, counts in status.items()
        if _text(number) in names
    }


def _status_by_entries(entries: Sequence[Mapping[Any, Any]]) -> dict[str, GroupStatus]:
    """Return the status by group name as far as the recorder's entries reach back."""
    reached: dict[str, GroupStatus] = {}
    for entry in entries:
        name, sequence = _group_of(entry)[0], _sequence(entry)
        if entry.get("is_p2p") or sequence < 0:
            continue
        known = reached.get(name, GroupStatus(enqueued=sequence, completed=sequence - 1))
        done = sequence if _is_done(entry) else known.completed
        reached[name] = GroupStatus(enqueued=max(known.enqueued, sequence), completed=max(known.completed, done))
    return reached
