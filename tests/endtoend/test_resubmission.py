"""A job that can't be requeued comes back as another one on a real cluster, once, also where the worker is killed."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.model import Disposition, MilestoneKind
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service, has_reached
from tests.endtoend.training import EXAMPLES
from tests.slurm.cluster import SlurmCluster
from workflows.state import Phase, RecoveryState

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

# The environment of a submission is kept by nobody: all that this script needs stands in it. A job that has trained
# goes on until it is let go, so that whoever begins to watch it late still sees it run.
SCRIPT = f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --no-requeue --output=%x-%j.log
#SBATCH --comment='{{"relight":{{"mode":"act"}}}}'
srun -l --kill-on-bad-exit=1 {sys.executable} {EXAMPLES / "train.py"} --iterations 60 --step-s 0.1 \\
    --checkpoint-every 10 --checkpoint-dir ckpt-$SLURM_JOB_NAME \\
    --fault "$1" --fault-node "$2" --fault-iteration 25 || exit
until [ -e "$3" ]; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def resubmitting(slurm: SlurmCluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The worker process, whose operator lets jobs be submitted anew."""
    service = servers.service(tmp_path_factory.mktemp("anew"))
    settings = slurm.scheduler_settings
    service.configure(settings, policy={"resubmit": True})
    service.start()
    yield service
    service.stop()


@pytest.fixture
def name() -> str:
    """A job's name that no other has, nor a first try of the same test: checkpoints are kept by it."""
    return f"anew-{uuid.uuid4().hex[:8]}"


def submit(slurm: SlurmCluster, name: str, fault: str) -> str:
    script = slurm.directory / "work" / f"{name}.sh"
    script.write_text(SCRIPT)
    arguments = (str(script), fault, "node02", str(may_end(slurm, name)))
    return slurm.run("sbatch", "--parsable", f"--job-name={name}", "--exclude=node08", *arguments).strip()


def may_end(slurm: SlurmCluster, name: str) -> Path:
    """Return the file that lets the jobs of this name go."""
    return slurm.directory / "work" / f"{name}.may-end"


def jobs_named(slurm: SlurmCluster, name: str) -> list[str]:
    return slurm.run("squeue", "--states=all", "--noheader", f"--name={name}", "--format=%i").split()


async def comes_back(slurm: SlurmCluster, service: Service, name: str, old: str, state: RecoveryState) -> None:
    """Follow the job in the place of `old` to its end, and see that there is only one."""
    new = state.resubmitted_as
    assert state.reconciliation is not None
    assert state.reconciliation.disposition is Disposition.CONVERGED, service.story(state)
    assert state.closed.startswith(f"resubmitted as {new}:"), service.story(state)
    await service.wait_for(new, "resumed", has_reached(MilestoneKind.RESUMED, 0))
    may_end(slurm, name).touch()
    after = await service.closed(new)

    assert after.closed == "completed", service.story(after)
    assert sorted(jobs_named(slurm, name)) == sorted([old, new])
    assert slurm.field(new, "ExcNodeList") == "node[02,08]"
    assert "node02" not in after.nodes
    assert after.progress.resumed_from == 20
    assert [past.attempt for past in after.past] == [0], "its budgets count on"
    assert f"in place of job {old}, with its 1 attempts" in after.timeline[0].text


async def test_a_job_that_refuses_to_be_requeued_comes_back_as_another_one_without_the_bad_node(
    slurm: SlurmCluster, resubmitting: Service, name: str
) -> None:
    await resubmitting.serving()
    old = submit(slurm, name, "xid79")
    await comes_back(slurm, resubmitting, name, old, await resubmitting.closed(old))


async def test_a_worker_that_is_killed_while_it_submits_leaves_one_job_and_none_held(
    slurm: SlurmCluster, resubmitting: Service, name: str
) -> None:
    await resubmitting.serving()
    old = submit(slurm, name, "xid79")
    await resubmitting.wait_for(old, "acting", lambda state: state.phase is Phase.ACTING, look_every_s=0.05)
    await slurm.wait_for(lambda: len(jobs_named(slurm, name)) == 2, 60, "the new job is there")
    for _ in range(2):
        resubmitting.kill()
        resubmitting.start()
        await resubmitting.state(old)
    await comes_back(slurm, resubmitting, name, old, await resubmitting.closed(old))
