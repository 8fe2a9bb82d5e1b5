"""relight's own processes on a cluster that they reach over ssh alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.endtoend.bad_node import comes_back_without_the_bad_node
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.slurm.cluster import SlurmCluster
from tests.ssh.server import SshServer

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(240)]

OUTAGE_EVERY_S = 3.0


@pytest.fixture(scope="module")
def service(
    slurm: SlurmCluster, sshd: SshServer, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The worker process, serving the real cluster in act mode, over ssh."""
    sshd.serve(slurm)
    service = servers.service(tmp_path_factory.mktemp("over-ssh"))
    service.configure(sshd.scheduler_settings())
    service.start()
    yield service
    service.stop()


async def test_a_job_comes_back_without_the_bad_node_while_the_connection_breaks_again_and_again(
    slurm: SlurmCluster, service: Service, sshd: SshServer
) -> None:
    async def break_connections() -> None:
        while True:
            await asyncio.sleep(OUTAGE_EVERY_S)
            sshd.kill_connections()

    breaking = asyncio.create_task(break_connections())
    try:
        await comes_back_without_the_bad_node(slurm, service)
    finally:
        breaking.cancel()
        with suppress(asyncio.CancelledError):
            await breaking


async def test_the_watchdog_looks_at_the_cluster_over_ssh(service: Service) -> None:
    looked = await asyncio.to_thread(service.relight, "watchdog", "--once", "--json")
    (look,) = json.loads(looked.stdout)
    assert look["cluster"] == service.cluster_name
    assert look["silence"] == ""


async def test_the_doctor_examines_the_cluster_over_ssh_and_names_the_option_that_the_key_lacks(
    slurm: SlurmCluster, service: Service, sshd: SshServer
) -> None:
    examined = await asyncio.to_thread(service.relight, "doctor", "slurm", "--json")
    checks = json.loads(examined.stdout)["clusters"][service.cluster_name]
    assert len(checks) > 3
    [refused] = [check for check in checks if "forced command" in check["says"]]
    assert (refused["name"], refused["finding"]) == ("batch scripts", "warning")
    assert "--scripts" in refused["remedy"]

    sshd.serve(slurm, "--scripts")
    examined = await asyncio.to_thread(service.relight, "doctor", "slurm", "--json")
    assert "batch scripts" in examined.stdout
    assert "forced command" not in examined.stdout


async def test_a_worker_that_ends_leaves_no_connection(service: Service, sshd: SshServer) -> None:
    assert sshd.connections()
    await asyncio.to_thread(service.stop)
    assert sshd.connections() == []
