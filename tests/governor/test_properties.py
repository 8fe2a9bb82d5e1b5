"""What must hold of the governor whatever is asked of it, in whatever order."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.governor import (
    FEW_EXCLUDED_NODES,
    FEW_RESTARTS,
    GovernorSettings,
    GovernorState,
    Granted,
    GrantRequest,
    ruling_on,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)

LIMITS = st.builds(
    GovernorSettings,
    window_s=st.sampled_from([10.0, 60.0, 600.0]),
    restarts=st.integers(0, 30),
    restarted_nodes_fraction=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    exclusions=st.integers(0, 12),
    excluded_nodes_fraction=st.sampled_from([0.0, 0.25, 1.0]),
)
ASKS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 5.0, 30.0, 400.0]),
        st.integers(0, 60),
        st.sampled_from(["gpu", "debug"]),
        st.integers(1, 16),
        st.sets(st.integers(0, 25), max_size=4),
        st.booleans(),
    ),
    max_size=120,
)
USABLE_NODES = st.sampled_from([None, 1, 8, 40])

Asked = tuple[datetime, GrantRequest]


def told(asks: list[tuple[float, int, str, int, set[int], bool]], usable_nodes: int | None) -> list[Asked]:
    """The requests with their times; an advice is the same whenever it is asked for."""
    now, requests, known = START, [], {}
    for pause_s, number, partition, nodes, exclude, restarts in asks:
        now += timedelta(seconds=pause_s)
        request = known.setdefault(
            number,
            GrantRequest(
                key=f"recovery/c/1@0#{number}.1",
                partition=partition,
                restarts=restarts,
                nodes=nodes,
                exclude=tuple(f"node{node:02}" for node in sorted(exclude)),
                excluded_until=START + timedelta(hours=1),
                usable_nodes=usable_nodes,
            ),
        )
        requests.append((now, request))
    return requests


def grants(requests: list[Asked], limits: GovernorSettings) -> list[Asked]:
    """Ask for all; return the granted restarts that were not granted before within the window."""
    state, granted = GovernorState(), []
    for now, request in requests:
        before = {grant.key for grant in state.at(now, limits).grants}
        state, ruling = ruling_on(state, request, limits, now)
        if isinstance(ruling, Granted) and request.restarts and request.key not in before:
            granted.append((now, request))
    return granted


def windows(granted: list[Asked], limits: GovernorSettings) -> list[list[GrantRequest]]:
    """Every window that begins with a grant: no other can hold more."""
    return [[request for at, request in granted if begins <= at < begins + limits.window] for begins, _ in granted]


@settings(deadline=None)
@given(ASKS, LIMITS, USABLE_NODES)
def test_no_window_holds_more_than_the_limits(
    asks: list[tuple[float, int, str, int, set[int], bool]], limits: GovernorSettings, usable_nodes: int | None
) -> None:
    granted = grants(told(asks, usable_nodes), limits)

    for window in windows(granted, limits):
        assert len(window) <= limits.restarts
        for partition in ("gpu", "debug"):
            here = [request for request in window if request.partition == partition]
            beyond = here[FEW_RESTARTS:]
            if usable_nodes is not None and beyond:
                assert sum(request.nodes for request in here) <= limits.restarted_nodes_fraction * usable_nodes


@settings(deadline=None)
@given(ASKS, LIMITS, USABLE_NODES)
def test_no_more_nodes_are_excluded_than_the_limits_allow(
    asks: list[tuple[float, int, str, int, set[int], bool]], limits: GovernorSettings, usable_nodes: int | None
) -> None:
    granted = grants(told(asks, usable_nodes), limits)
    seen: set[tuple[str, str]] = set()
    new: list[tuple[datetime, int]] = []
    for at, request in granted:
        if at >= START + timedelta(hours=1):
            break
        fresh = {(request.partition, node) for node in request.exclude} - seen
        seen |= fresh
        new.append((at, len(fresh)))

    for begins, _ in new:
        assert sum(count for at, count in new if begins <= at < begins + limits.window) <= limits.exclusions
    if usable_nodes is not None:
        most = max(FEW_EXCLUDED_NODES, math.floor(limits.excluded_nodes_fraction * usable_nodes))
        for partition in ("gpu", "debug"):
            assert len([place for place in seen if place[0] == partition]) <= most


@settings(deadline=None)
@given(ASKS, LIMITS, USABLE_NODES)
def test_to_ask_again_at_once_changes_nothing(
    asks: list[tuple[float, int, str, int, set[int], bool]], limits: GovernorSettings, usable_nodes: int | None
) -> None:
    state = GovernorState()
    for now, request in told(asks, usable_nodes):
        state, first = ruling_on(state, request, limits, now)
        again, second = ruling_on(state, request, limits, now)
        assert (again, second) == (state, first)


@settings(deadline=None)
@given(ASKS, LIMITS, USABLE_NODES)
def test_the_state_is_bounded_by_the_limits_and_survives_its_json(
    asks: list[tuple[float, int, str, int, set[int], bool]], limits: GovernorSettings, usable_nodes: int | None
) -> None:
    state = GovernorState()
    for now, request in told(asks, usable_nodes):
        state, _ = ruling_on(state, request, limits, now)
        assert len(state.grants) <= limits.restarts
        assert GovernorState.model_validate_json(state.model_dump_json()) == state


@settings(deadline=None)
@given(ASKS, LIMITS, USABLE_NODES)
def test_a_refusal_costs_nothing_and_a_quiet_window_makes_room(
    asks: list[tuple[float, int, str, int, set[int], bool]], limits: GovernorSettings, usable_nodes: int | None
) -> None:
    state, now = GovernorState(), START
    for now, request in told(asks, usable_nodes):
        before = state.at(now, limits)
        state, ruling = ruling_on(state, request, limits, now)
        if not isinstance(ruling, Granted):
            assert state == before
            assert ruling.until is None or ruling.until > now
    plain = GrantRequest(key="later", partition="gpu", excluded_until=now, usable_nodes=usable_nodes)
    _, later = ruling_on(state, plain, limits, now + limits.window)
    assert isinstance(later, Granted) == (limits.restarts > 0)
