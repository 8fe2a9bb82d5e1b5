"""Hanging jobs on a real cluster: what they showed is kept, they get their chance, then they are killed for good."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.audit import AuditEvent, AuditKind
from recovery.model import Disposition
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(240)]

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
COMMENT = json.dumps({"relight": {"mode": "act", "hang_after_s": 3}})
RANK = Path(__file__).parent / "hanging_rank.py"


@pytest.fixture(scope="module")
def service(slurm: SlurmCluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The worker process, serving the real cluster in act mode, with stacks."""
    service = servers.service(tmp_path_factory.mktemp("hangs"))
    service.configure(
        slurm.scheduler_settings,
        evidence={"stacks": True, "py_spy": PY_SPY},
        detection={"settle_s": 0},
    )
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def hanging(slurm: SlurmCluster, service: Service) -> dict[str, str]:
    """By what they do upon SIGTERM, two jobs of two ranks each that hang at iteration 12 of their first attempt; their
    output is truncated at a requeue."""
    options = ("--nodes=2", "--ntasks=2", f"--comment={COMMENT}", "--open-mode=truncate")
    command = f"exec srun --label {sys.executable} {RANK}"
    return {upon_term: slurm.sbatch(f"{command} {upon_term}", *options) for upon_term in ("ignore", "checkpoint")}


async def evidence_of(service: Service, job_id: str) -> AuditEvent:
    [event] = [event for event in await service.audited(job_id) if event.kind is AuditKind.EVIDENCE]
    return event


async def test_ranks_that_ignore_sigterm_are_killed_and_what_they_showed_outlives_their_output(
    slurm: SlurmCluster, service: Service, hanging: dict[str, str]
) -> None:
    job_id = hanging["ignore"]

    state = await service.closed(job_id)

    assert state.closed == "completed", service.story(state)
    assert state.reconciliation is not None
    assert state.reconciliation.disposition is Disposition.CONVERGED
    assert slurm.field(job_id, "Restarts") == "1"
    assert "hangs at iteration 12" not in (slurm.directory / "work" / f"slurm-{job_id}.out").read_text()
    event = await evidence_of(service, job_id)
    kept = Path(str(event.details["file"])).read_text()
    assert kept.count("hangs at iteration 12") == 2
    assert kept.count(" all_reduce (") == 2
    assert " all_reduce (" in str(event.details["stacks"])
    assert "hangs at iteration 12" in str(event.details["output"])
    shown = json.loads(service.relight("show", job_id, "--json").stdout)
    assert [entry["text"] for entry in shown["timeline"] if entry["kind"] == "evidence"] == [event.summary]


async def test_ranks_that_write_a_checkpoint_upon_sigterm_are_resumed_from_it_and_their_exit_is_no_second_failure(
    slurm: SlurmCluster, service: Service, hanging: dict[str, str]
) -> None:
    job_id = hanging["checkpoint"]

    state = await service.closed(job_id)

    assert state.closed == "completed", service.story(state)
    assert state.progress.resumed_from == 11, service.story(state)
    assert slurm.field(job_id, "Restarts") == "1"
    kinds = [event.kind for event in await service.audited(job_id)]
    assert (kinds.count(AuditKind.DETECTED), kinds.count(AuditKind.ORDERED)) == (1, 1)
    assert kinds.index(AuditKind.ORDERED) < kinds.index(AuditKind.EVIDENCE) < kinds.index(AuditKind.RECONCILED)
