"""Where a rank of a het job is: its steps may run on one component only, so the order of the nodes tells nothing."""

from __future__ import annotations

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, LogLine

XID = "0: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
EXIT = "srun: error: node02: task 0: Exited with exit code 1"
NODES = ("node01", "node02", "node03")


def culprits(*lines: str, in_rank_order: bool) -> tuple[str, ...]:
    facts = JobFacts(nodes=NODES, state="FAILED", exit_code=1, in_rank_order=in_rank_order)
    return attribute(Incident(lines=tuple(LogLine(text=line) for line in lines), facts=facts)).culprits


def test_the_first_task_of_a_step_need_not_be_on_the_first_node() -> None:
    assert culprits(XID, in_rank_order=True) == ("node01",)
    assert culprits(XID, in_rank_order=False) == ()


def test_a_line_that_names_the_tasks_node_is_believed() -> None:
    assert culprits(XID, EXIT, in_rank_order=False) == ("node02",)
