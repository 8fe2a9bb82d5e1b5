"""The worker dies at random moments of a real recovery, and the recovery happens exactly once all the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from recovery.audit import AuditKind
from tests.endtoend.service import Service
from tests.endtoend.training import ACT, submit
from tests.slurm.cluster import SlurmCluster
from workflows.state import Phase, RecoveryState

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

KILLS = 10
SEED = 20261129
FAULT = {"FAULT": "xid79", "FAULT_NODE": "node02", "FAULT_ITERATION": 25, "STEP_S": 0.15, "ITERATIONS": 300}


async def test_a_worker_killed_again_and_again_requeues_exactly_once(slurm: SlurmCluster, service: Service) -> None:
    moments = random.Random(SEED)
    job = submit(slurm, comment=ACT, FAULT_LINGER_S=1, **FAULT)
    await service.wait_for(job.job_id, "adopted", lambda state: state.audit_count > 0)
    await slurm.wait_for(lambda: "iteration       24/" in job.log, 60, "the job comes near its fault")
    for _ in range(KILLS):
        await asyncio.sleep(moments.uniform(0.1, 3.5))
        service.kill()
        service.start()
    state = await service.closed(job.job_id, timeout_s=240)

    assert state.closed == "completed", service.story(state)
    assert job.field("Restarts") == "1"
    assert job.log.count("DUE TO JOB REQUEUE") <= 1
    assert "node02" in job.field("ExcNodeList")
    assert "node02" not in state.nodes

    events = await service.audited(job.job_id)
    assert len({event.key for event in events}) == len(events) == state.audit_count
    told = Counter(event.kind for event in events)
    assert told[AuditKind.ORDERED] == told[AuditKind.RECONCILED] == 1
    assert told[AuditKind.CLOSED] == 1


async def test_a_worker_killed_whenever_it_acts_requeues_exactly_once_and_leaves_nothing_held(
    slurm: SlurmCluster, service: Service
) -> None:
    job = submit(slurm, comment=ACT, nodes=2, **FAULT | {"ITERATIONS": 60})
    kills = 0
    for _ in range(4):
        await service.wait_for(job.job_id, "acting or done", _acting_or_done, timeout_s=120, look_every_s=0.05)
        state = await service.state(job.job_id)
        if state is not None and state.reconciliation is not None:
            break
        service.kill()
        kills += 1
        service.start()
    state = await service.closed(job.job_id, timeout_s=120)

    assert kills >= 1
    assert state.closed == "completed", service.story(state)
    assert job.field("Restarts") == "1"
    assert job.field("Reason") == "None"
    told = Counter(event.kind for event in await service.audited(job.job_id))
    assert told[AuditKind.ORDERED] == told[AuditKind.RECONCILED] == 1


def _acting_or_done(state: RecoveryState) -> bool:
    return state.phase is Phase.ACTING or state.reconciliation is not None
