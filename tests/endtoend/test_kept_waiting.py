"""Jobs of a real Slurm that can't do without the node that they would be kept off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from recovery.audit import AuditKind
from recovery.model import Action, MilestoneKind
from tests.endtoend.bad_node import FAULT
from tests.endtoend.service import Service, has_reached
from tests.endtoend.training import ACT, submit
from tests.slurm.cluster import SlurmCluster
from tests.slurm.reservation import reservation
from workflows.state import RecoveryState

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

LATER_FAULT = FAULT | {"FAULT_ITERATION": 29, "STEP_S": 0.5}
"""The GPU fails in each attempt on its node; so it trains for some seconds before that."""
UNREADABLE_CONSTRAINT = "--constraint=[h100*2]"
"""relight does not read this one, so it takes all nodes of the partition for the job's."""


@pytest.fixture
def reserved(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    with reservation(slurm, "node[01-02]"):
        yield slurm


@pytest.fixture
def featured(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    slurm.run("scontrol", "update", "NodeName=node[01-02]", "AvailableFeatures=h100", "ActiveFeatures=h100")
    yield slurm
    slurm.run("scontrol", "update", "NodeName=node[01-02]", "AvailableFeatures=", "ActiveFeatures=")


async def goes_on(slurm: SlurmCluster, service: Service, job_id: str) -> RecoveryState:
    """See the job train again, and end it: its GPU would fail once more."""
    state = await service.wait_for(job_id, "resumed", has_reached(MilestoneKind.RESUMED, 1))
    slurm.run("scancel", job_id)
    await service.closed(job_id)
    return state


async def test_a_job_is_not_kept_off_a_node_of_its_reservation_that_it_needs(
    reserved: SlurmCluster, service: Service
) -> None:
    job = submit(reserved, "--reservation=training", comment=ACT, nodes=2, **LATER_FAULT)
    state = await goes_on(reserved, service, job.job_id)

    assert state.advice is not None
    assert (state.advice.action, state.advice.exclude) == (Action.RESTART, ())
    assert "too few nodes would be left" in state.advice.reason
    assert state.nodes == ("node01", "node02")


async def test_an_exclusion_with_which_a_job_cannot_start_is_withdrawn(
    featured: SlurmCluster, service: Service
) -> None:
    job = submit(featured, UNREADABLE_CONSTRAINT, "--exclude=node08", comment=ACT, nodes=2, **LATER_FAULT)
    state = await goes_on(featured, service, job.job_id)

    assert state.nodes == ("node01", "node02")
    assert state.reconciliation is not None
    assert (state.reconciliation.excluded, state.exclusions) == (("node08",), ())
    told = [event.summary for event in await service.audited(job.job_id) if event.kind is AuditKind.WARNED]
    assert told == ["the job could not start without node02: it may use what it was kept off again"]


async def test_a_node_that_a_person_readmits_is_there_at_once(featured: SlurmCluster, service: Service) -> None:
    job = submit(featured, UNREADABLE_CONSTRAINT, comment=ACT, nodes=2, **LATER_FAULT)
    state = await service.wait_for(job.job_id, "put back", lambda state: state.attempt == 1)
    assert [each.node for each in state.exclusions] == ["node02"]

    said = await asyncio.to_thread(service.relight, "readmit", job.job_id, "node02")

    assert (said.returncode, "at once while the job waits" in said.stdout) == (0, True), said.stderr
    state = await goes_on(featured, service, job.job_id)
    assert state.nodes == ("node01", "node02")
    assert state.advice is not None
    assert (state.advice.rule, state.advice.by) != ("let_back", "policy")
