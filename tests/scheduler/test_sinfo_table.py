"""Nodes, recorded from a real cluster with one node dead and one drained."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.sinfo_table import read_nodes

RECORDED = (Path(__file__).parents[1] / "data" / "slurm" / "sinfo-22.05.txt").read_text()


def test_nodes_are_read_with_every_state_flag_and_all_their_partitions() -> None:
    nodes = {node.name: node for node in read_nodes(RECORDED)}

    assert list(nodes) == [f"node0{number}" for number in range(1, 9)]
    assert nodes["node01"].states == {"IDLE"}
    assert nodes["node01"].usable
    assert nodes["node01"].reason == ""
    assert nodes["node07"].states == {"DOWN", "NOT_RESPONDING"}
    assert not nodes["node07"].usable
    assert nodes["node07"].reason == "Not responding"
    assert not nodes["node08"].usable
    assert {"main", "other"} == nodes["node01"].partitions
    assert nodes["node01"].features == frozenset()


def test_a_reason_may_hold_anything() -> None:
    (node,) = (node for node in read_nodes(RECORDED) if node.name == "node08")
    assert node.reason == "ECC | errors\n=2"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "\n",
        "slurm_load_partitions: Unable to contact slurm controller",
        RECORDED[:-5],
        "a\x1fb\x1e\n",
        "--x\x1fIDLE\x1fp\x1fr\x1e\n",
    ],
)
def test_anything_else_is_no_answer(answer: str) -> None:
    with pytest.raises(SchedulerUnavailable, match="sinfo"):
        read_nodes(answer)
