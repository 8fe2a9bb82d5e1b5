"""What relight must not touch on a real cluster, and where Slurm or a person acts first."""

from __future__ import annotations

import asyncio

import pytest

from recovery.audit import AuditKind
from recovery.model import Action, MilestoneKind, Mode
from tests.endtoend.service import Service, has_reached
from tests.endtoend.training import ACT, submit
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

LONG = {"ITERATIONS": 4000, "STEP_S": 0.2, "CHECKPOINT_EVERY": 10}


async def test_a_failed_node_is_requeued_once_by_slurm_and_not_again_by_relight(
    slurm: SlurmCluster, service: Service
) -> None:
    job = submit(slurm, comment=ACT, nodes=2, ITERATIONS=150, STEP_S=0.2)
    try:
        await service.wait_for(job.job_id, "adopted", lambda state: state.audit_count > 0)
        await slurm.wait_for(lambda: "iteration       10/" in job.log, 60, "the job trains")
        second = job.field("NodeList")
        assert second.startswith("node")
        lost = slurm.run("scontrol", "show", "hostnames", second).split()[1]
        slurm.kill_slurmd(lost)
        state = await service.wait_for(job.job_id, "second attempt", lambda state: state.attempt == 1, timeout_s=90)
        assert state.advice is None or state.advice.action in (Action.NONE, Action.RESTART_EXCLUDE)
        # Slurm lets a job that it requeued wait for two minutes; a person may cut that short.
        slurm.run("scontrol", "update", f"jobid={job.job_id}", "StartTime=now")
        state = await service.wait_for(job.job_id, "resumed", has_reached(MilestoneKind.RESUMED, 1), timeout_s=90)
        assert lost not in state.nodes
        assert job.field("Restarts") == "1"
    finally:
        slurm.run("scancel", job.job_id)
        slurm.restart_slurmd(lost)
    state = await service.closed(job.job_id)
    assert state.closed.startswith("cancelled")
    assert job.field("Restarts") == "1"


async def test_a_job_that_its_owner_cancelled_stays_cancelled(slurm: SlurmCluster, service: Service) -> None:
    job = submit(slurm, comment=ACT, nodes=2, **LONG)
    await service.wait_for(job.job_id, "adopted", lambda state: state.audit_count > 0)
    await slurm.wait_for(lambda: "iteration" in job.log, 60, "the job trains")
    slurm.run("scancel", job.job_id)
    state = await service.closed(job.job_id)
    assert state.closed.startswith("cancelled by")
    assert state.advice is None
    assert job.field("JobState") == "CANCELLED"
    assert AuditKind.ORDERED not in {event.kind for event in await service.audited(job.job_id)}


@pytest.mark.parametrize(
    "comment",
    ["", "my best run so far", '{"wandb": {"project": "relight-sweep"}}'],
    ids=["none", "prose", "other tool"],
)
async def test_a_job_that_did_not_opt_in_is_never_touched(slurm: SlurmCluster, service: Service, comment: str) -> None:
    job = submit(slurm, comment=comment, nodes=1, FAULT="keyerror", FAULT_ITERATION=2, STEP_S=0.1)
    await slurm.wait_for(lambda: job.field("JobState") == "FAILED", 60, "the job fails")
    await asyncio.sleep(4)
    assert await service.state(job.job_id) is None
    assert job.field("Restarts") == "0"


async def test_a_job_submitted_with_no_requeue_is_advised_on_and_left(slurm: SlurmCluster, service: Service) -> None:
    job = submit(slurm, "--no-requeue", comment=ACT, nodes=1, FAULT="keyerror", FAULT_ITERATION=2, STEP_S=0.1)
    state = await service.wait_for(job.job_id, "reconciled", lambda state: state.reconciliation is not None)
    assert state.reconciliation is not None
    assert state.reconciliation.reason == "not_requeueable"
    assert job.field("JobState") == "FAILED"
    assert job.field("Restarts") == "0"


@pytest.mark.parametrize(
    ("comment", "complaint"),
    [
        ('{"relight": {"mode": "act"', "not JSON"),
        ('{"relight": {"mode": 7}}', "mode"),
        ('{"relight": {"mode": "act", "colour": "red"}}', "colour"),
    ],
    ids=["broken JSON", "wrong type", "unknown key"],
)
async def test_a_malformed_comment_means_observe_and_one_clear_warning(
    slurm: SlurmCluster, service: Service, comment: str, complaint: str
) -> None:
    job = submit(slurm, comment=comment, nodes=1, FAULT="keyerror", FAULT_ITERATION=2, STEP_S=0.1)
    state = await service.wait_for(job.job_id, "ended", lambda state: state.ended)
    warnings = [entry.text for entry in state.timeline if entry.kind == AuditKind.WARNED.value]
    assert len(warnings) == 1
    assert complaint in warnings[0]
    assert {event.mode for event in await service.audited(job.job_id)} == {Mode.OBSERVE}
    assert job.field("Restarts") == "0"


async def test_a_person_who_holds_the_job_wins(slurm: SlurmCluster, service: Service) -> None:
    job = submit(slurm, comment=ACT, nodes=2, **LONG)
    await service.wait_for(job.job_id, "adopted", lambda state: state.audit_count > 0)
    await slurm.wait_for(lambda: "iteration" in job.log, 60, "the job trains")
    slurm.run("scontrol", "requeuehold", job.job_id)
    state = await service.wait_for(job.job_id, "seen", lambda state: state.attempt == 1)
    await asyncio.sleep(3)
    assert state.advice is None or state.advice.action is Action.NONE, service.story(state)
    assert job.field("Reason") == "job_requeued_in_held_state"
    assert job.field("Restarts") == "1"
    slurm.run("scancel", job.job_id)
    state = await service.closed(job.job_id)
    assert state.closed.startswith("cancelled by")
