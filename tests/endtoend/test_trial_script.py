"""The script by which sites try out NVIDIA's AJR: a crash that is only told of, in a log of each attempt's own, while
the job goes on doing nothing. It must come back by that line, not by its end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from recovery.model import Action, SymptomKind
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.endtoend.training import ACT
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(240)]

LINE = "Rank0: (1) segmentation fault: artificial segfault"
IDLES_FOR_S = 120
SCRIPT = f"""
log="%x_%j_$(date +date_%y-%m-%d_time_%H-%M-%S).log"
srun --output="$log" sh -c 'sleep 3; echo "{LINE}"; sleep {IDLES_FOR_S}; exit 1'
"""


@pytest.fixture(scope="module")
def service(slurm: SlurmCluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The worker process, serving the real cluster in act mode. What has never shown progress gets five minutes by
    default until a fatal line counts."""
    service = servers.service(tmp_path_factory.mktemp("trial"))
    commands = slurm.scheduler_settings
    service.configure(commands, detection={"startup_fault_grace_s": 3})
    service.start()
    yield service
    service.stop()


async def test_the_trial_job_comes_back_by_its_fatal_line_while_it_still_runs(
    slurm: SlurmCluster, service: Service
) -> None:
    job_id = slurm.sbatch(SCRIPT, "--job-name=trial", f"--comment={json.dumps(ACT)}")
    try:
        state = await service.wait_for(job_id, "restarted", lambda state: state.attempt == 1)
    finally:
        slurm.run("scancel", job_id)

    assert state.symptom is not None
    assert state.advice is not None
    assert state.verdict is not None
    assert state.symptom.kind is SymptomKind.CRASH
    assert [evidence.text for evidence in state.symptom.evidence] == [LINE]
    assert (state.verdict.cause, state.advice.action) == ("native_crash", Action.RESTART)
    began, acted = state.milestones[0].at, state.advice.advised_at
    assert (acted - began).total_seconds() < IDLES_FOR_S
    assert slurm.field(job_id, "Restarts") == "1"
