"""The governor's limits, each by itself, as an operator reads them in relight.yaml."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.governor import (
    FEW_EXCLUDED_NODES,
    FEW_RESTARTS,
    GovernorSettings,
    GovernorState,
    Granted,
    GrantRequest,
    Limit,
    Ruling,
    Tripped,
    ruling_on,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOMORROW = NOW + timedelta(days=1)


class Governor:
    """A governor and its clock."""

    def __init__(self, **limits: Any) -> None:
        self.settings = GovernorSettings(**limits)
        self.state = GovernorState()
        self.now = NOW
        self._numbers = iter(range(1_000_000))

    def asked(self, **request: Any) -> Ruling:
        facts = {"key": f"a#{next(self._numbers)}", "partition": "gpu", "excluded_until": TOMORROW, **request}
        self.state, ruling = ruling_on(self.state, GrantRequest(**facts), self.settings, self.now)
        return ruling

    def granted(self, times: int, **request: Any) -> None:
        for _ in range(times):
            assert self.asked(**request) == Granted()


def limit_of(ruling: Ruling) -> Limit:
    assert isinstance(ruling, Tripped), ruling
    return ruling.limit


def test_restarts_beyond_the_limit_wait_until_the_oldest_has_left_the_window() -> None:
    governor = Governor(restarts=3, window_s=600)
    governor.granted(3)
    governor.now += timedelta(seconds=10)

    refused = governor.asked()
    assert refused == Tripped(
        limit=Limit.RESTARTS,
        until=NOW + timedelta(minutes=10),
        says="3 restarts in the last 10 min, the limit is 3",
    )
    governor.now = NOW + timedelta(minutes=10) - timedelta(milliseconds=1)
    assert governor.asked() == refused
    governor.now = NOW + timedelta(minutes=10)
    governor.granted(3)


def test_the_nodes_of_restarted_jobs_are_limited_by_the_usable_nodes_of_their_partition() -> None:
    governor = Governor(restarted_nodes_fraction=0.5)
    governor.granted(FEW_RESTARTS, nodes=5, usable_nodes=120)

    governor.granted(2, nodes=5, usable_nodes=120)
    assert limit_of(governor.asked(nodes=5, usable_nodes=120)) is Limit.RESTARTED_NODES
    assert governor.asked(nodes=5, usable_nodes=120, partition="other") == Granted()


def test_a_few_restarts_are_no_storm_on_a_partition_that_one_job_fills() -> None:
    governor = Governor(restarted_nodes_fraction=0.5)
    governor.granted(FEW_RESTARTS, nodes=64, usable_nodes=64)

    assert limit_of(governor.asked(nodes=64, usable_nodes=64)) is Limit.RESTARTED_NODES


def test_without_knowing_the_nodes_only_the_absolute_limits_hold() -> None:
    governor = Governor(restarts=50, exclusions=30, restarted_nodes_fraction=0.1, excluded_nodes_fraction=0.1)
    governor.granted(20, nodes=100)
    for number in range(30):
        assert governor.asked(exclude=(f"node{number}",)) == Granted()

    assert limit_of(governor.asked()) is Limit.RESTARTS


def test_nodes_newly_excluded_are_limited_per_window_and_known_ones_cost_nothing() -> None:
    governor = Governor(exclusions=2)
    governor.granted(1, exclude=("node01", "node02"))
    governor.granted(5, exclude=("node01",))

    assert limit_of(governor.asked(exclude=("node03",))) is Limit.EXCLUSIONS
    governor.granted(1)
    governor.now += timedelta(minutes=10)
    governor.granted(1, exclude=("node03",))


def test_nodes_excluded_at_the_same_time_are_limited_until_their_exclusions_end() -> None:
    governor = Governor(excluded_nodes_fraction=0.25)
    for number in range(8):
        governor.granted(1, exclude=(f"node{number}",), usable_nodes=32)
        governor.now += timedelta(minutes=10)

    refused = governor.asked(exclude=("node99",), usable_nodes=32)
    assert refused == Tripped(
        limit=Limit.EXCLUDED_NODES,
        until=TOMORROW,
        says="8 nodes of partition gpu excluded at the same time, the limit is 8",
    )
    governor.now = TOMORROW
    governor.granted(1, exclude=("node99",), usable_nodes=32)


def test_all_jobs_together_may_exclude_what_a_single_one_may() -> None:
    governor = Governor(excluded_nodes_fraction=0.1)
    nodes = tuple(f"node{number}" for number in range(FEW_EXCLUDED_NODES))
    governor.granted(1, exclude=nodes, usable_nodes=6)

    assert limit_of(governor.asked(exclude=("node5",), usable_nodes=6)) is Limit.EXCLUDED_NODES


def test_a_stop_needs_no_room() -> None:
    governor = Governor(restarts=0)

    assert governor.asked(restarts=False) == Granted()
    assert limit_of(governor.asked()) is Limit.RESTARTS


def test_the_same_advice_asked_twice_costs_once() -> None:
    governor = Governor(restarts=2)
    governor.granted(5, key="a#same")

    assert len(governor.state.grants) == 1
    governor.granted(1)
    assert governor.asked(key="a#same") == Granted()
    assert limit_of(governor.asked()) is Limit.RESTARTS


def test_a_limit_that_is_set_to_nothing_says_that_no_room_will_come() -> None:
    refused = Governor(restarts=0).asked()

    assert isinstance(refused, Tripped)
    assert refused.until is None


def test_half_a_cluster_that_fails_over_and_over_is_restarted_about_twice_and_then_left() -> None:
    # 125 nodes of 8 GPUs; the filesystem of 62 of them is gone and every restart fails within a minute.
    governor = Governor()
    granted = 0
    for second in range(0, 300, 60):
        governor.now = NOW + timedelta(seconds=second)
        granted += sum(governor.asked(nodes=2, usable_nodes=125) == Granted() for _ in range(31))

    assert granted == 62, "the partition's nodes once over"
