"""On which nodes a job could start: its partitions, its reservation and its constraint, as Slurm shows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.het_jobs import joined
from activities.scheduler.protocol import JobRecord, JobState, NodeRecord
from activities.scheduler.site import Reservation
from activities.usable_nodes import usable_nodes
from tests.slurm.cluster import SlurmCluster
from tests.slurm.reservation import reservation

AT = datetime(2026, 3, 1, tzinfo=UTC)


def a_job(**facts: Any) -> JobRecord:
    return JobRecord(
        **{"job_id": "7", "partition": "gpu", "state": JobState.RUNNING, "submitted_at": AT, "node_count": 2, **facts}
    )


def a_node(name: str, *features: str, state: str = "IDLE") -> NodeRecord:
    words = frozenset(state.split("+"))
    return NodeRecord(name=name, states=words, partitions=frozenset({"gpu"}), features=frozenset(features))


def a_reservation(name: str, *nodes: str, flags: frozenset[str] = frozenset()) -> Reservation:
    return Reservation(name=name, starts_at=AT, ends_at=AT, nodes=nodes, flags=flags)


NODES = (a_node("node01", "h100", "ib"), a_node("node02", "h100"), a_node("node03", "a100", "ib"), a_node("node04"))


@pytest.mark.parametrize(
    ("constraint", "usable"),
    [
        ("", {"node01", "node02", "node03", "node04"}),
        ("h100", {"node01", "node02"}),
        ("h100&ib", {"node01"}),
        ("b200", set()),
        ("h100|ib", {"node01", "node02", "node03", "node04"}),
        ("[h100*2&ib*1]", {"node01", "node02", "node03", "node04"}),
        ("h100&(ib|roce)", {"node01", "node02", "node03", "node04"}),
    ],
)
def test_a_constraint_of_plain_names_leaves_the_nodes_that_have_them_all(constraint: str, usable: set[str]) -> None:
    assert usable_nodes(a_job(constraint=constraint), NODES, ()) == usable


def test_a_reservation_leaves_its_own_nodes() -> None:
    known = (a_reservation("night", "node01", "node03"), a_reservation("day", "node04"))
    assert usable_nodes(a_job(reservation="night"), NODES, known) == {"node01", "node03"}
    assert usable_nodes(a_job(reservation="night,day"), NODES, known) == {"node01", "node03", "node04"}
    assert usable_nodes(a_job(reservation="night", constraint="h100"), NODES, known) == {"node01"}


@pytest.mark.parametrize(
    "known",
    [
        None,
        (a_reservation("day", "node01"),),
        (a_reservation("night"),),
        (a_reservation("night", "node01", flags=frozenset({"FLEX"})),),
    ],
    ids=["no answer", "another one", "of licences only", "its jobs may leave it"],
)
def test_of_a_reservation_whose_nodes_are_not_known_nothing_is_said(known: tuple[Reservation, ...] | None) -> None:
    assert usable_nodes(a_job(reservation="night"), NODES, known) is None


def test_nodes_in_maintenance_are_for_their_reservations_jobs_alone() -> None:
    nodes = (a_node("node01", state="IDLE+MAINT"), a_node("node02", state="IDLE+MAINT+DRAIN"), a_node("node03"))
    known = (a_reservation("burn-in", "node01", "node02"),)
    assert usable_nodes(a_job(reservation="burn-in"), nodes, known) == {"node01"}
    assert usable_nodes(a_job(), nodes, known) == {"node03"}


def test_what_one_component_of_a_het_job_asks_for_says_nothing_of_the_others() -> None:
    leader = a_job(constraint="h100", reservation="night")
    follower = a_job(job_id="8", het_leader_id="7", constraint="a100", reservation="night")
    whole = next(record for record in joined((leader, follower)) if record.job_id == "7")
    assert (whole.constraint, whole.reservation) == ("", "night")


@pytest.fixture
def featured(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A cluster with a reservation of two nodes, and three nodes with features."""
    slurm.run("scontrol", "update", "NodeName=node[04-06]", "AvailableFeatures=h100,ib", "ActiveFeatures=h100,ib")
    with reservation(slurm, "node[01-02]"):
        yield slurm
        slurm.clear()
    slurm.wait_until_idle()
    slurm.run("scontrol", "update", "NodeName=node[04-06]", "AvailableFeatures=", "ActiveFeatures=")


@pytest.mark.slurm
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("option", "usable"),
    [
        ("--reservation=training", {"node01", "node02"}),
        ("--constraint=h100&ib", {"node04", "node05", "node06"}),
    ],
)
async def test_a_real_slurm_tells_where_a_job_can_start(featured: SlurmCluster, option: str, usable: set[str]) -> None:
    site = SlurmCli(LocalRunner(bin_dir=str(featured.commands), slurm_conf=str(featured.conf)))
    job_id = featured.sbatch("sleep 600", "--nodes=2", option)

    record = await site.job(job_id)

    assert usable_nodes(record, await site.nodes(), await site.reservations()) == usable
