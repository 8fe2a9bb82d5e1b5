"""Job arrays and het jobs on a real cluster: one workflow for each task, one for all components of a het job."""

from __future__ import annotations

import re

import pytest

from recovery.model import Action
from tests.endtoend.bad_node import FAULT
from tests.endtoend.service import Service
from tests.endtoend.training import EXAMPLES, submit
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

# Of the last task, whose JobId is the array's own.
LAST_TASKS_NODE = "node05"
HET_JOB = f"""#!/bin/bash
#SBATCH --nodes=1 --output=het-%j.log --open-mode=append
#SBATCH --comment='{{"relight":{{"mode":"act"}}}}'
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=1
srun -l --het-group=1 --kill-on-bad-exit=1 python3 {EXAMPLES / "train.py"} --iterations 30 --step-s 0.1 \\
    --checkpoint-every 10 --checkpoint-dir ckpt-$SLURM_JOB_ID --fault xid79 --fault-node node02 --fault-iteration 15
"""


async def test_one_tasks_recovery_changes_no_other_also_where_its_number_is_the_arrays(
    slurm: SlurmCluster, service: Service
) -> None:
    await service.serving()
    _empty(slurm)
    fault = {**FAULT, "FAULT_NODE": LAST_TASKS_NODE}
    array = submit(slurm, "--array=1-3", "--exclusive", "--output=task-%A_%a.log", nodes=2, **fault).job_id
    states = [await service.closed(f"{array}_{task}") for task in (1, 2, 3)]

    assert [state.closed for state in states] == ["completed"] * 3, service.story(states[2])
    assert [state.attempt for state in states] == [0, 0, 1], service.story(states[2])
    assert (slurm.field(f"{array}_3", "JobId"), slurm.field(f"{array}_3", "ExcNodeList")) == (array, LAST_TASKS_NODE)
    assert states[2].progress.resumed_from == 20
    for task in (1, 2):
        record = slurm.run("scontrol", "-o", "show", "job", f"{array}_{task}")
        assert "Restarts=0 " in record
        assert "ExcNodeList=(null)" in record
        assert "AdminComment" not in record


def _empty(slurm: SlurmCluster) -> None:
    """End what earlier tests left running: on an empty cluster the tasks get the nodes in their order."""
    slurm.run("scancel", "--quiet", "--user=root")
    slurm.wait_until_idle()


async def test_tasks_that_all_fail_alike_are_found_as_they_start_and_stopped_from_the_third_on(
    slurm: SlurmCluster, service: Service
) -> None:
    await service.serving()
    fault = {"FAULT": "keyerror", "FAULT_ITERATION": 3, "STEP_S": 0.1}
    array = submit(slurm, "--array=1-4%2", nodes=1, **fault).job_id
    waiting = slurm.sbatch("true", f"--dependency=afterok:{array}")
    states = [await service.closed(f"{array}_{task}") for task in (1, 2, 3, 4)]

    assert all(state.closed.startswith("stopped by policy") for state in states), service.story(states[0])
    rules = [state.advice.rule for state in states if state.advice]
    assert rules.count("array_systematic") >= 2, service.story(states[3])
    assert sum(state.attempt for state in states) <= 2
    assert states[3].stranded.jobs == (waiting,), service.story(states[3])
    shown = service.relight("show", f"{array}_4").stdout
    assert f"dependents {waiting} can never start: they need this job to succeed" in " ".join(shown.split())
    assert slurm.field(waiting, "JobState") == "PENDING"
    slurm.run("scancel", waiting)
    told = re.findall(rf"array \S+/{array}: \d of \d started tasks", (service.directory / "worker.log").read_text())
    assert len(told) == 1


async def test_a_het_job_comes_back_whole_and_no_component_gets_the_bad_node(
    slurm: SlurmCluster, service: Service
) -> None:
    await service.serving()
    leader = slurm.sbatch(HET_JOB)
    state = await service.closed(leader)

    assert state.closed == "completed", service.story(state)
    assert state.advice is not None
    assert (state.advice.action, state.advice.exclude) == (Action.RESTART_EXCLUDE, ("node02",)), service.story(state)
    assert len(state.nodes) == 3, "the allocation is that of all components"
    for component in (leader, str(int(leader) + 1)):
        record = slurm.run("scontrol", "-o", "show", "job", component)
        assert "Restarts=1 " in record
        assert "ExcNodeList=node02 " in record
    assert "node02" not in state.nodes
    assert await service.state(str(int(leader) + 1)) is None, "a component has no workflow of its own"
