"""Limits on what relight does to one cluster: `ruling_on` grants an act or keeps it back, over a sliding window.

The governor guards against many jobs at once: a dead filesystem, a switch, an attribution gone wrong. How often one job
may come back is for its own budgets to say. A refusal is for now only: the window moves on.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from recovery.model import NodeName, Value
from recovery.notices import FailureSeen

FEW_RESTARTS = 10
"""So many restarts in a window are no storm, however small the partition is."""
FEW_EXCLUDED_NODES = 4
"""What a single job may keep off by default; all jobs together are never allowed less."""
MAX_EXCLUDED_NODES = 2_000
"""Nodes that are remembered as excluded; beyond them no further one is granted."""


class GovernorSettings(Value):
    """The limits of one cluster. They are for the worst hour of the year: on all other days none of them is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window_s: float = Field(default=600.0, ge=1, le=86_400)
    """The sliding window in which restarts and exclusions are counted."""
    restarts: int = Field(default=100, ge=0, le=5_000)
    """Restarts per window."""
    restarted_nodes_fraction: float = Field(default=1.0, ge=0)
    """Nodes of restarted jobs per window, in usable nodes of their partition; from the 11th restart on."""
    exclusions: int = Field(default=20, ge=0, le=1_000)
    """Nodes newly excluded per window."""
    excluded_nodes_fraction: float = Field(default=0.25, ge=0, le=1)
    """Nodes excluded at the same time, all jobs together, in usable nodes of their partition; from the 5th on."""

    @property
    def window(self) -> timedelta:
        """The sliding window."""
        return timedelta(seconds=self.window_s)


class Limit(StrEnum):
    """What keeps an act back."""

    PAUSED = "paused"
    """A person has paused the cluster."""
    RESTARTS = "restarts"
    RESTARTED_NODES = "restarted_nodes_fraction"
    EXCLUSIONS = "exclusions"
    EXCLUDED_NODES = "excluded_nodes_fraction"
    NO_ANSWER = "no_answer"
    """The governor could not be asked in time: what it would have said is not known."""


class GrantRequest(Value):
    """An act that wants to be granted."""

    key: str = Field(max_length=400)
    """The advice's key: asking again for the same advice costs nothing more while its grant is in the window."""
    partition: str = ""
    restarts: bool = True
    """Whether the job is requeued; a stop counts against no limit."""
    nodes: int = Field(default=1, ge=0)
    """How many nodes the job takes."""
    exclude: tuple[NodeName, ...] = ()
    excluded_until: datetime
    usable_nodes: int | None = None
    """Of the partition; None: not known, and only the absolute limits hold."""
    failure: FailureSeen | None = None
    """What led to the act, to be told to people; None: they were told. It has no say in the ruling."""


class Granted(Value):
    """The act may go on."""

    kind: Literal["granted"] = "granted"


class Tripped(Value):
    """The act is kept back for now."""

    kind: Literal["tripped"] = "tripped"
    limit: Limit
    until: datetime | None = None
    """When there may be room again; None: not known."""
    says: str
    """Why, for a person."""


Ruling = Annotated[Granted | Tripped, Field(discriminator="kind")]


class Grant(Value):
    """One grant, as it counts in the window."""

    key: str
    at: datetime
    partition: str
    nodes: int
    newly_excluded: int


class ExcludedNode(Value):
    """A node that some job keeps off."""

    node: NodeName
    partition: str
    until: datetime


class GovernorState(Value):
    """What was granted: no more than the limits allow, so its size is bounded by them."""

    grants: tuple[Grant, ...] = ()
    """Of the last window, oldest first."""
    excluded: tuple[ExcludedNode, ...] = ()

    def at(self, now: datetime, settings: GovernorSettings) -> GovernorState:
        """Return what still counts at `now`."""
        return GovernorState(
            grants=tuple(grant for grant in self.grants if grant.at > now - settings.window),
            excluded=tuple(entry for entry in self.excluded if entry.until > now),
        )


def ruling_on(
    state: GovernorState, request: GrantRequest, settings: GovernorSettings, now: datetime
) -> tuple[GovernorState, Ruling]:
    """Return the ruling on `request` and the state after it. `now` never goes back between two calls."""
    state = state.at(now, settings)
    if not request.restarts or any(grant.key == request.key for grant in state.grants):
        return state, Granted()
    new = _newly_excluded(state, request)
    for tripped in (
        _restarts(state, settings),
        _restarted_nodes(state, request, settings),
        _exclusions(state, len(new), settings),
        _excluded_nodes(state, request, len(new), settings),
    ):
        if tripped is not None:
            return state, tripped
    return _with_grant(state, request, new, now), Granted()


def _restarts(state: GovernorState, settings: GovernorSettings) -> Tripped | None:
    if len(state.grants) < settings.restarts:
        return None
    return Tripped(
        limit=Limit.RESTARTS,
        until=_room_at(state.grants, settings),
        says=f"{_count(len(state.grants), 'restart')} in the last {_span(settings)}, the limit is {settings.restarts}",
    )


def _restarted_nodes(state: GovernorState, request: GrantRequest, settings: GovernorSettings) -> Tripped | None:
    ours = [grant for grant in state.grants if grant.partition == request.partition]
    if request.usable_nodes is None or len(ours) < FEW_RESTARTS:
        return None
    nodes, most = sum(grant.nodes for grant in ours), settings.restarted_nodes_fraction * request.usable_nodes
    if nodes + request.nodes <= most:
        return None
    return Tripped(
        limit=Limit.RESTARTED_NODES,
        until=_room_at(ours, settings),
        says=f"jobs of {_count(nodes, 'node')} of partition {request.partition} were restarted in the last"
        f" {_span(settings)}, the limit is {most:g}",
    )


def _exclusions(state: GovernorState, new: int, settings: GovernorSettings) -> Tripped | None:
    earlier = [grant for grant in state.grants if grant.newly_excluded]
    used = sum(grant.newly_excluded for grant in earlier)
    if not new or used + new <= settings.exclusions:
        return None
    return Tripped(
        limit=Limit.EXCLUSIONS,
        until=_room_at(earlier, settings),
        says=f"{_count(used, 'node')} excluded in the last {_span(settings)}, the limit is {settings.exclusions}",
    )


def _excluded_nodes(
    state: GovernorState, request: GrantRequest, new: int, settings: GovernorSettings
) -> Tripped | None:
    held = [entry for entry in state.excluded if entry.partition == request.partition]
    full = len(state.excluded) + new > MAX_EXCLUDED_NODES
    if not new or (request.usable_nodes is None and not full):
        return None
    usable = request.usable_nodes if request.usable_nodes is not None else 0
    most = max(FEW_EXCLUDED_NODES, math.floor(settings.excluded_nodes_fraction * usable))
    if len(held) + new <= most and not full:
        return None
    return Tripped(
        limit=Limit.EXCLUDED_NODES,
        until=min((entry.until for entry in held), default=None),
        says=f"{_count(len(held), 'node')} of partition {request.partition} excluded at the same time,"
        f" the limit is {MAX_EXCLUDED_NODES if full else most}",
    )


def _newly_excluded(state: GovernorState, request: GrantRequest) -> tuple[NodeName, ...]:
    held = {entry.node for entry in state.excluded if entry.partition == request.partition}
    return tuple(node for node in dict.fromkeys(request.exclude) if node not in held)


def _with_grant(state: GovernorState, request: GrantRequest, new: tuple[NodeName, ...], now: datetime) -> GovernorState:
    grant = Grant(key=request.key, at=now, partition=request.partition, nodes=request.nodes, newly_excluded=len(new))
    known = {(entry.partition, entry.node): entry for entry in state.excluded}
    for node in request.exclude:
        place = (request.partition, node)
        until = max(request.excluded_until, known[place].until) if place in known else request.excluded_until
        known[place] = ExcludedNode(node=node, partition=request.partition, until=until)
    return GovernorState(grants=(*state.grants, grant), excluded=tuple(known.values()))


def _room_at(grants: tuple[Grant, ...] | list[Grant], settings: GovernorSettings) -> datetime | None:
    """When the oldest of `grants` leaves the window; None where there is none, and so no room to come."""
    return grants[0].at + settings.window if grants else None


def _span(settings: GovernorSettings) -> str:
    return f"{settings.window_s / 60:.3g} min" if settings.window_s >= 60 else f"{settings.window_s:.3g} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
