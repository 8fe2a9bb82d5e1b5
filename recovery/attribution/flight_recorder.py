"""Which ranks are missing from, or stuck in, the collectives that the others wait for, from flight-recorder dumps.

Each rank that times out writes what it has enqueued and not seen done. Side by side the dumps of all ranks tell:

* a rank is *stuck* when an operation is not done on it that is done on another member of its group: its own GPU or
  process does not go on, for the others' part had arrived;
* a rank is *missing* when others wait for it in an operation that it never enqueued while it waits for nobody itself,
  or when they wait for it and it wrote no dump;
* a rank is *astray* when it called another operation, or one of another size, than most of its group at the same place:
  that is the program's doing, and what comes after it says nothing;
* a rank *stopped* when it waits in the same operation as a member of its group that went on to enqueue more: waiting is
  not what held it back.

A rank that is behind because it waits for another one is a victim, and never named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import re2

from recovery.attribution.flight_dump import Dump, GroupStatus, Operation
from recovery.model import Value

_MOST_ABSENT = 0.25
"""When more of the ranks than this have no dump, dumps were lost, and their absence says nothing."""

_ROOTED = re2.compile(r"broadcast|(?:^|:)_?reduce$|gather$|scatter$")
_UNEVEN = re2.compile(r"all_?to_?all|^_?(?:all_?)?gather$|scatter$|^_?reduce_scatter$")
"""Whose members may give parts of different sizes."""
_NOT_ROOTED = re2.compile(r"all_?gather|all_?reduce|reduce_scatter")


class RankFinding(Value):
    """Why one rank is named."""

    rank: int
    reason: str


class FlightRecorderVerdict(Value):
    """What the dumps of an attempt say."""

    culpable_ranks: tuple[int, ...] = ()
    findings: tuple[RankFinding, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    """The victims: ranks with operations that are not done."""
    ranks_without_dump: tuple[int, ...] = ()
    unlocated_because: str = ""
    """Why nobody is named, where nobody is."""


def culpable_ranks(dumps: Iterable[Dump]) -> FlightRecorderVerdict:
    """Name the ranks that hold up the others."""
    recorder = _Recorder({dump.rank: dump for dump in dumps})
    named = recorder.astray() or recorder.missing() | recorder.stopped() | recorder.stuck()
    return FlightRecorderVerdict(
        culpable_ranks=tuple(sorted(named)),
        findings=tuple(RankFinding(rank=rank, reason=named[rank]) for rank in sorted(named)),
        waiting_ranks=tuple(sorted(recorder.holding - named.keys())),
        ranks_without_dump=tuple(sorted(recorder.absent)),
        unlocated_because="" if named else recorder.why_nobody(),
    )


class _Extent(NamedTuple):
    """How far the members of a group are apart, so that the many groups that are together need no closer look."""

    least_enqueued: int
    most_enqueued: int
    most_completed: int
    members: int
    """How many ranks used it."""


def _extents(dumps: Iterable[Dump]) -> dict[str, _Extent]:
    extents: dict[str, _Extent] = {}
    for dump in dumps:
        for group, status in dump.status.items():
            known = extents.get(group, _Extent(status.enqueued, status.enqueued, status.completed, 0))
            extents[group] = _Extent(
                min(known.least_enqueued, status.enqueued),
                max(known.most_enqueued, status.enqueued),
                max(known.most_completed, status.completed),
                known.members + 1,
            )
    return extents


class _Recorder:
    """All dumps of an attempt side by side."""

    def __init__(self, dumps: Mapping[int, Dump]) -> None:
        self._dumps = dumps
        world = {rank for dump in dumps.values() for ranks in dump.groups.values() for rank in ranks}
        self.absent = frozenset(world - dumps.keys())
        self.silent = self.absent if len(self.absent) <= _MOST_ABSENT * len(world) else frozenset()
        """The ranks whose missing dump means something."""
        self.holding = frozenset(rank for rank, dump in dumps.items() if dump.pending)
        self._extents = _extents(dumps.values())
        self._point_to_point = frozenset[str]().union(*(dump.point_to_point for dump in dumps.values()))

    def astray(self) -> dict[int, str]:
        """Return the ranks that called something else than most of their group at the same place, with the reason."""
        calls: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
        for rank, dump in self._dumps.items():
            for group, operations in self._pending_by_group(dump).items():
                calls[group, operations[0].sequence][rank] = operations[0]
        found: dict[int, str] = {}
        for by_rank in calls.values():
            kinds = {rank: _kind(operation) for rank, operation in by_rank.items()}
            usual, count = Counter(kinds.values()).most_common(1)[0]
            if 2 * count > len(kinds):
                odd = (rank for rank, kind in kinds.items() if kind != usual)
                found |= {rank: _other_path(by_rank[rank], usual, count) for rank in odd}
        return found

    def stuck(self) -> dict[int, str]:
        """Return the ranks that do not go on by themselves, with the reason."""
        found = {rank: reason for rank, dump in self._dumps.items() if (reason := self._why_stuck(dump))}
        return found if 2 * len(found) <= len(self._dumps) else {}

    def missing(self) -> dict[int, str]:
        """Return the ranks that others wait for and that do not wait themselves, with the reason."""
        awaited = {other for dump in self._dumps.values() for other in self._waits_of(dump)}
        absent = dict.fromkeys(awaited & self.silent, "the others wait for it and it wrote no dump")
        behind = awaited - self.absent - self.holding
        return absent | dict.fromkeys(behind, "the others wait for it in operations that it never enqueued")

    def stopped(self) -> dict[int, str]:
        """Return the ranks that enqueued less than a member of their group that waits in the same operation."""
        return {rank: reason for rank, dump in self._dumps.items() if (reason := self._why_stopped(dump))}

    def why_nobody(self) -> str:
        """Say why no rank can be named."""
        if not self._dumps:
            return "there are no dumps"
        if not self.holding:
            return "no rank has an operation that is not done"
        if self.absent and not self.silent:
            return f"{len(self.absent)} of the ranks have no dump"
        return (
            "all members of the stuck groups have enqueued the same operations and none has finished more than another"
        )

    def _why_stuck(self, dump: Dump) -> str:
        for group, operations in self._pending_by_group(dump).items():
            first = next((operation for operation in operations if not _ends_early_for_some(operation)), None)
            if first is None or self._extents[group].most_completed < first.sequence:
                continue
            for other in dump.groups.get(group, ()):
                status = self._status(other, group)
                if other != dump.rank and status is not None and status.completed >= first.sequence:
                    return f"{_say(first, dump)} is done on rank {other} and not on it"
        return self._why_not_started(dump)

    def _why_stopped(self, dump: Dump) -> str:
        for group, ranks in dump.groups.items():
            own = dump.status.get(group)
            if own is None or group in self._point_to_point or self._extents[group].most_enqueued <= own.enqueued:
                continue
            for other in ranks:
                status = self._status(other, group)
                if status is not None and status.enqueued > own.enqueued and self._wait_alike(dump, other):
                    return f"rank {other} waits in the same operation and went on to enqueue more"
        return ""

    def _wait_alike(self, dump: Dump, other: int) -> bool:
        """Whether the oldest operation that is left is the same one, or its like in a group of the same kind."""
        theirs = self._dumps[other].pending
        if not dump.pending or not theirs:
            return False
        one, two = dump.pending[0], theirs[0]
        return (one.role, one.sequence, one.name) == (two.role, two.sequence, two.name)

    def _why_not_started(self, dump: Dump) -> str:
        """Where starts are noted: the oldest operation that is left has not started, though others wait in it."""
        first = next(iter(dump.pending), None)
        if first is None or first.started or not dump.notes_starts:
            return ""
        for other in dump.groups.get(first.group, ()):
            pending = self._dumps[other].pending if other in self._dumps else ()
            if any(same.started and _is_same(same, first) for same in pending):
                return f"{_say(first, dump)} has started on rank {other} and not on it"
        return ""

    def _waits_of(self, dump: Dump) -> Iterator[int]:
        for group, operations in self._pending_by_group(dump).items():
            last = operations[-1].sequence
            if self.absent or self._extents[group].least_enqueued < last or self._is_partly_used(dump, group):
                yield from (rank for rank in dump.groups.get(group, ()) if self._lacks(rank, group, last))
        for operation in dump.pending:
            peer = self._unready_peer(dump, operation)
            if peer is not None:
                yield peer

    def _is_partly_used(self, dump: Dump, group: str) -> bool:
        return self._extents[group].members < len(dump.groups.get(group, ()))

    def _lacks(self, rank: int, group: str, sequence: int) -> bool:
        status = self._status(rank, group)
        if status is None:
            return rank in self.absent or self._dumps[rank].knows_all_groups
        return status.enqueued < sequence

    def _unready_peer(self, dump: Dump, operation: Operation) -> int | None:
        """Return the other side of a send or recv when it does not stand ready with its half."""
        ranks = dump.groups.get(operation.group, ())
        if operation.peer is None or operation.peer >= len(ranks) or dump.rank not in ranks:
            return None
        other = ranks[operation.peer]
        pending = self._dumps[other].pending if other in self._dumps else ()
        ready = any(
            half.group == operation.group and half.peer == ranks.index(dump.rank) and half.sends != operation.sends
            for half in pending
        )
        return None if ready else other

    def _pending_by_group(self, dump: Dump) -> dict[str, list[Operation]]:
        """Collectives only, and only of groups without sends: those count their sequences for each rank alone."""
        by_group: dict[str, list[Operation]] = {}
        for operation in dump.pending:
            comparable = operation.group not in self._point_to_point and operation.group in self._extents
            if operation.peer is None and comparable:
                by_group.setdefault(operation.group, []).append(operation)
        return by_group

    def _status(self, rank: int, group: str) -> GroupStatus | None:
        dump = self._dumps.get(rank)
        return None if dump is None else dump.status.get(group)


def _say(operation: Operation, dump: Dump) -> str:
    return f"{operation.name} {operation.sequence} of the group of {len(dump.groups.get(operation.group, ()))} ranks"


def _kind(operation: Operation) -> tuple[str, int]:
    """What all members of a group have to agree about."""
    if "coalesced" in operation.name:
        return "coalesced", -1
    return operation.name, -1 if _UNEVEN.search(operation.name) else operation.elements


def _other_path(operation: Operation, usual: tuple[str, int], count: int) -> str:
    name, elements = usual
    if operation.name != name:
        return f"it called {operation.name} where {count} others called {name}: the program's paths differ"
    return (
        f"its {name} has {operation.elements} elements, those of {count} others {elements}: the program's paths differ"
    )


def _is_same(one: Operation, other: Operation) -> bool:
    return one.group == other.group and one.sequence == other.sequence and one.peer is None and other.peer is None


def _ends_early_for_some(operation: Operation) -> bool:
    """A root that only sends, or a leaf that only gives, may be done before the others."""
    return _ROOTED.search(operation.name) is not None and _NOT_ROOTED.search(operation.name) is None
