"""relight's own processes on a cluster that they reach through slurmrestd alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from activities.scheduler.rest_api import RestApi
from tests.endtoend.bad_node import FAULT, comes_back_without_the_bad_node
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.endtoend.training import ACT, submit
from tests.rest.running import Slurmrestd
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(240)]

TROUBLE_EVERY_S = 3.0


@pytest.fixture(scope="module")
def token_file(slurm: SlurmCluster, slurmrestd: Slurmrestd, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a token, good for some minutes."""
    file = tmp_path_factory.mktemp("token") / "jwt"
    file.write_text(slurm.token(lifespan_s=600))
    return file


@pytest.fixture(scope="module")
def service(
    slurmrestd: Slurmrestd, servers: Servers, token_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The worker process, in act mode; not started yet."""
    service = servers.service(tmp_path_factory.mktemp("over-rest"))
    service.configure({"kind": "rest", "url": slurmrestd.tcp, "token_file": str(token_file)})
    yield service
    service.stop()


async def until_serving(service: Service) -> None:
    log = service.directory / "worker.log"
    async with asyncio.timeout(60):
        while "serving" not in log.read_text():
            await asyncio.sleep(0.2)


async def test_a_job_comes_back_where_the_version_can_requeue_and_is_only_observed_with_the_reason_where_it_cannot(
    slurm: SlurmCluster, rest_api: RestApi, service: Service, slurmrestd: Slurmrestd, token_file: Path
) -> None:
    version = await rest_api.version()
    if version.requeues:
        await comes_back_through_all_trouble(slurm, service, slurmrestd, token_file)
    else:
        await is_only_observed(slurm, service, version.name)


async def comes_back_through_all_trouble(
    slurm: SlurmCluster, service: Service, slurmrestd: Slurmrestd, token_file: Path
) -> None:
    """While slurmrestd is killed and tokens end, again and again."""

    async def break_everything() -> None:
        while True:
            await asyncio.sleep(TROUBLE_EVERY_S)
            slurmrestd.kill()
            token_file.write_text(await asyncio.to_thread(slurm.token, lifespan_s=61))
            slurmrestd.start()

    token_file.write_text(slurm.token(lifespan_s=61))
    service.start()
    await until_serving(service)
    breaking = asyncio.create_task(break_everything())
    try:
        await comes_back_without_the_bad_node(slurm, service)
    finally:
        breaking.cancel()
        with suppress(asyncio.CancelledError):
            await breaking
        slurmrestd.kill()
        slurmrestd.start()


async def is_only_observed(slurm: SlurmCluster, service: Service, version: str) -> None:
    """Mode act is refused, and the job is advised on."""
    service.start()
    await until_serving(service)

    job = submit(slurm, comment=ACT, **FAULT)
    state = await service.wait_for(job.job_id, "ended", lambda state: state.ended)

    log = (service.directory / "worker.log").read_text()
    assert "mode act is refused: this cluster is only observed" in log
    assert f"slurmrestd's {version} can't requeue a job" in log
    assert state.advice is not None
    assert state.advice.exclude == ("node02",)
    assert state.reconciliation is None
    assert (job.field("JobState"), job.field("Restarts")) == ("FAILED", "0")


async def test_the_watchdog_looks_at_the_cluster_through_slurmrestd(service: Service) -> None:
    looked = await asyncio.to_thread(service.relight, "watchdog", "--once", "--json")
    (look,) = json.loads(looked.stdout)
    assert look["cluster"] == service.cluster_name
    assert look["silence"] == ""
