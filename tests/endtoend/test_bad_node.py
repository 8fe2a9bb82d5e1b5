"""A GPU falls off the bus on one node of a real Slurm job."""

from __future__ import annotations

import re

import pytest

from recovery.audit import AuditKind
from recovery.model import Action, Mode
from tests.endtoend.bad_node import FAULT, LAST_CHECKPOINT, comes_back_without_the_bad_node
from tests.endtoend.service import Service
from tests.endtoend.training import ACT, OBSERVE, submit
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


async def test_the_job_comes_back_without_the_bad_node_from_its_checkpoint(
    slurm: SlurmCluster, service: Service
) -> None:
    await comes_back_without_the_bad_node(slurm, service)


async def test_the_fault_line_is_found_before_the_job_ends(slurm: SlurmCluster, service: Service) -> None:
    job = submit(slurm, comment=ACT, FAULT_LINGER_S=6, **FAULT)
    state = await service.wait_for(job.job_id, "advised", lambda state: state.advice is not None)
    assert job.field("JobState") == "RUNNING"
    assert state.verdict is not None
    assert state.verdict.culprits == ("node02",)
    state = await service.closed(job.job_id)
    assert state.closed == "completed", service.story(state)
    assert job.field("Restarts") == "1"


@pytest.mark.parametrize("srun_args", ["", "-l"], ids=["bare lines", "srun -l"])
async def test_the_bad_node_is_named_however_lines_are_prefixed(
    slurm: SlurmCluster, service: Service, srun_args: str
) -> None:
    job = submit(slurm, comment=OBSERVE, SRUN_ARGS=srun_args, **FAULT)
    state = await service.wait_for(job.job_id, "ended", lambda state: state.ended)
    assert state.verdict is not None
    assert state.verdict.culprits == ("node02",), service.story(state)


async def test_observe_records_the_same_advice_and_changes_nothing(slurm: SlurmCluster, service: Service) -> None:
    job = submit(slurm, comment=OBSERVE, **FAULT)
    state = await service.wait_for(job.job_id, "ended", lambda state: state.ended)

    assert state.advice is not None
    assert state.advice.action is Action.RESTART_EXCLUDE
    assert state.advice.exclude == ("node02",)
    assert state.reconciliation is None
    assert job.field("JobState") == "FAILED"
    assert job.field("Restarts") == "0"
    record = slurm.run("scontrol", "show", "job", job.job_id)
    assert "ExcNodeList=(null)" in record or "ExcNodeList" not in record
    assert "AdminComment" not in record

    events = await service.audited(job.job_id)
    assert AuditKind.ORDERED not in {event.kind for event in events}
    assert {event.mode for event in events} == {Mode.OBSERVE}


async def test_a_hang_is_killed_and_comes_back(slurm: SlurmCluster, service: Service) -> None:
    comment = {"relight": {"mode": "act", "hang_after_s": 5}}
    job = submit(slurm, comment=comment, nodes=2, FAULT="hang", FAULT_ITERATION=25, STEP_S=0.15, ITERATIONS=40)
    state = await service.closed(job.job_id)
    assert state.closed == "completed", service.story(state)
    assert job.field("Restarts") == "1"
    assert re.search(r"no progress for \d+ s", " ".join(entry.text for entry in state.timeline))
    assert state.progress.first_iteration == LAST_CHECKPOINT + 1
