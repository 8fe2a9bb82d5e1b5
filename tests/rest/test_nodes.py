"""slurmrestd's nodes, as each version writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.scheduler.protocol import NodeRecord, SchedulerUnavailable
from activities.scheduler.rest_nodes import read_nodes


def told(**node: Any) -> str:
    return json.dumps(
        {"nodes": [{"name": "node01", "partitions": ["main", "other"], "reason": "", **node}], "errors": []}
    )


@pytest.mark.parametrize(
    ("text", "states"),
    [
        (told(state="idle", state_flags=["DRAIN"]), {"IDLE", "DRAIN"}),
        (told(state=["DOWN", "NOT_RESPONDING"]), {"DOWN", "NOT_RESPONDING"}),
        (told(state=["IDLE", "MAINTENANCE"]), {"IDLE", "MAINT"}),
        (told(state=["IDLE", "A_LATER_SLURMS_WORD"]), {"IDLE", "A_LATER_SLURMS_WORD"}),
    ],
    ids=["v0.0.38", "v0.0.40", "in maintenance", "unknown words"],
)
def test_a_state_is_the_same_words_as_sinfo_says(text: str, states: set[str]) -> None:
    (node,) = read_nodes(text, "it")
    assert node == NodeRecord(name="node01", states=frozenset(states), partitions=frozenset({"main", "other"}))


@pytest.mark.parametrize("features", ["h100,ib", ["h100", "ib"]], ids=["v0.0.38", "v0.0.40"])
def test_features_are_names(features: str | list[str]) -> None:
    (node,) = read_nodes(told(state="idle", features=features), "it")
    assert node.features == {"h100", "ib"}


@pytest.mark.parametrize("features", ["", [], None])
def test_a_node_may_have_no_features(features: object) -> None:
    (node,) = read_nodes(told(state="idle", features=features), "it")
    assert node.features == frozenset()


def test_a_drained_node_is_not_usable_and_says_why() -> None:
    (node,) = read_nodes(told(state="idle", state_flags=["DRAIN"], reason="bad HBM"), "it")
    assert not node.usable
    assert node.reason == "bad HBM"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"nodes": []}', '{"nodes": [{"name": "node01"}]}', told(state="idle", name="a b")]
)
def test_anything_else_is_no_answer(text: str) -> None:
    with pytest.raises(SchedulerUnavailable, match="it"):
        read_nodes(text, "it")
