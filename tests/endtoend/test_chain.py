"""A chain of jobs on a real cluster: one breaks, and the next one starts by itself without the bad node."""

from __future__ import annotations

import json

import pytest

from activities.scheduler.marker import Account, read_marker
from recovery.audit import AuditKind
from tests.endtoend.bad_node import FAULT
from tests.endtoend.service import Service
from tests.endtoend.training import submit
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

CHAIN = {"APS": {"auto_resume_mode": "singleton_dependency"}}


async def test_the_next_job_of_a_chain_starts_without_the_node_that_broke_the_one_before(
    slurm: SlurmCluster, service: Service
) -> None:
    await service.serving()
    slurm.run("scancel", "--quiet", "--user=root")
    slurm.wait_until_idle()
    first = submit(slurm, "--job-name=chain", comment=CHAIN, nodes=2, **FAULT | {"FAULT_LINGER_S": 8})
    following = submit(slurm, "--job-name=chain", "--dependency=singleton", comment=CHAIN, nodes=2, ITERATIONS=20)
    broken = await service.closed(first.job_id)
    went_on = await service.closed(following.job_id)

    assert broken.closed == f"its chain goes on: job {following.job_id} of the chain is next, and avoids node02"
    assert went_on.closed == "completed", service.story(went_on)
    assert (first.field("Restarts"), first.field("JobState")) == ("0", "FAILED")
    assert following.field("ExcNodeList") == "node02"
    assert "node02" not in went_on.nodes
    ordered = [event.summary for event in await service.audited(first.job_id) if event.kind is AuditKind.ORDERED]
    assert ordered[0] == "restart without node02: keeping the next job of the chain off node02"
    comment = json.loads(slurm.run("squeue", "--json", "--states=all"))
    (record,) = [job for job in comment["jobs"] if job["job_id"] == int(following.job_id)]
    account = read_marker(record["admin_comment"])
    assert isinstance(account, Account)
    assert account.excluded == ("node02",)
