"""One story for every way to a real Slurm: a GPU falls off the bus, and the job comes back without that node."""

from __future__ import annotations

from recovery.audit import AuditKind
from recovery.model import Action, Disposition, MilestoneKind
from tests.endtoend.service import Service
from tests.endtoend.training import ACT, submit
from tests.slurm.cluster import SlurmCluster

FAULT = {"FAULT": "xid79", "FAULT_NODE": "node02", "FAULT_ITERATION": 25, "STEP_S": 0.15, "ITERATIONS": 40}
LAST_CHECKPOINT = 20


async def comes_back_without_the_bad_node(slurm: SlurmCluster, service: Service) -> None:
    """Submit the job, see what relight makes of it, and hold that against what Slurm and the audit trail say."""
    await service.serving()
    job = submit(slurm, "--exclude=node08", comment=ACT, FAULT_LINGER_S=3, **FAULT)
    state = await service.closed(job.job_id)

    assert state.closed == "completed", service.story(state)
    assert state.verdict is not None
    assert state.verdict.culprits == ("node02",)
    assert "node02" not in state.verdict.victims
    assert state.advice is not None
    assert state.advice.action is Action.RESTART_EXCLUDE
    assert state.reconciliation is not None
    assert state.reconciliation.disposition is Disposition.CONVERGED
    assert set(state.reconciliation.excluded) == {"node02", "node08"}
    assert job.field("Restarts") == "1"
    assert "node02" not in state.nodes
    assert state.progress.resumed_from == LAST_CHECKPOINT
    assert state.progress.first_iteration == LAST_CHECKPOINT + 1

    before = {m.kind: m.at for m in state.milestones if m.attempt == 0}
    after = {m.kind: m.at for m in state.milestones if m.attempt == 1}
    path = [
        before[MilestoneKind.DETECTED],
        before[MilestoneKind.ATTRIBUTED],
        before[MilestoneKind.ADVISED],
        before[MilestoneKind.ACTED],
        after[MilestoneKind.ALLOCATED],
        after[MilestoneKind.RESUMED],
    ]
    assert path == sorted(path)
    assert MilestoneKind.COMPLETED in after

    events = await service.audited(job.job_id)
    kinds = [event.kind for event in events]
    assert kinds.index(AuditKind.ADVISED) < kinds.index(AuditKind.ORDERED) < kinds.index(AuditKind.RECONCILED)
    detected = next(event for event in events if event.kind is AuditKind.DETECTED)
    assert detected.symptom is not None
    assert "fallen off the bus" in detected.symptom.evidence[0].text
