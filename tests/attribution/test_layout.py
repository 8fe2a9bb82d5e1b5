"""Where a rank or a task is: only what was told or seen of the layout places one: a guess would exclude a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, LogLine
from recovery.attribution.layout import learn_layout
from recovery.model import Action, Verdict

NODES = ("node01", "node02", "node03", "node04")
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
VICTIM = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was"
)
MEGATRON = "iteration       10/     100 | consumed samples:          320 | elapsed time per iteration (ms): 1000.0 |"


def _verdict(*texts: str, **facts: object) -> Verdict:
    job = JobFacts.model_validate({"nodes": NODES, "state": "FAILED", "exit_code": 1, **facts})
    return attribute(Incident(lines=tuple(LogLine(text=text, source="job.out") for text in texts), facts=job))


LABELLED = (*(f"{task}: {MEGATRON}" for task in range(32)), f"3: {ECC}", f"0: {VICTIM}", f"20: {VICTIM}")


@pytest.mark.parametrize("lines", [[f"3: {ECC}"], [f"[rank3]: {ECC}"], LABELLED], ids=["task", "rank", "32 tasks"])
def test_a_number_alone_places_nothing(lines: list[str]) -> None:
    verdict = _verdict(*lines)
    assert verdict.culprits == ()
    assert verdict.suggested is Action.RESTART
    assert "lie on nodes is not known" in verdict.unlocated_because


def test_gpus_alone_do_not_tell_a_launchers_task_from_a_gpus() -> None:
    assert _verdict(f"3: {ECC}", gpus_per_node=8).culprits == ()
    assert _verdict(*LABELLED, gpus_per_node=8).culprits == ("node01",)


@pytest.mark.parametrize(("tasks_per_node", "culprit"), [(1, "node04"), (2, "node02"), (8, "node01")])
def test_the_layout_that_was_told_places_a_task(tasks_per_node: int, culprit: str) -> None:
    assert _verdict(f"3: {ECC}", tasks_per_node=tasks_per_node).culprits == (culprit,)


def test_a_step_of_more_tasks_than_the_job_was_asked_for_is_not_placed_as_told() -> None:
    assert _verdict(*LABELLED, tasks_per_node=1).culprits == ()
    assert _verdict(*LABELLED, tasks_per_node=1, gpus_per_node=8).culprits == ("node01",)


def test_ranks_beyond_the_nodes_place_the_lowest_on_the_first_node() -> None:
    assert _verdict(f"[rank3]: {ECC}", f"[rank20]: {VICTIM}").culprits == ("node01",)
    assert _verdict(f"[rank7]: {ECC}", f"[rank20]: {VICTIM}").culprits == ()


def test_the_lowest_number_is_on_the_first_node_in_any_layout() -> None:
    assert _verdict(f"0: {ECC}").culprits == ("node01",)
    assert _verdict(f"[rank0]: {ECC}").culprits == ("node01",)


def test_the_exits_of_two_nodes_tell_how_the_other_tasks_lie() -> None:
    exits = ("srun: error: node02: tasks 8-15: Exited with exit code 1", "srun: error: node03: tasks 16-23: Killed")
    assert _verdict(f"27: {ECC}", *exits).culprits == ("node04",)


@pytest.mark.parametrize("label", ["{}: ", "[rank{}]: "])
def test_where_the_last_nodes_number_is_the_last_there_is_one_process_a_node(label: str) -> None:
    assert _verdict(label.format(3) + MEGATRON, label.format(2) + ECC).culprits == ("node03",)
    assert _verdict(label.format(31) + MEGATRON, label.format(2) + ECC, gpus_per_node=8).culprits == ("node01",)


@given(per_node=st.integers(1, 20), nodes=st.integers(2, 6), data=st.data())
def test_whatever_pairs_are_seen_no_number_is_placed_on_another_node(
    per_node: int, nodes: int, data: st.DataObject
) -> None:
    names = [f"n{index}" for index in range(nodes)]
    numbers = st.integers(0, per_node * nodes - 1)
    seen = data.draw(st.sets(numbers))
    layout = learn_layout((), {n: names[n // per_node] for n in seen}, names, max(seen, default=-1))
    number = data.draw(numbers)
    assert layout.index_of(number) in (None, number // per_node)
