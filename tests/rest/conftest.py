"""The fixture ``slurmrestd``: one real server for the real cluster of this test run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from tests.endtoend.conftest import servers
from tests.rest.running import Slurmrestd, rest_client, why_no_slurmrestd
from tests.slurm.cluster import SlurmCluster

__all__ = ["rest", "rest_api", "servers", "slurmrestd"]

pytest.register_assert_rewrite("tests.scheduler.conformance")


@pytest.fixture(scope="session")
def slurmrestd(slurm: SlurmCluster) -> Slurmrestd:
    """A real slurmrestd that takes tokens. A test that uses it is skipped where none can run."""
    reason = why_no_slurmrestd(slurm)
    if reason is not None:
        pytest.skip(f"tests with slurmrestd skipped: {reason}")
    server = Slurmrestd(slurm)
    server.start()
    return server


@pytest.fixture(scope="session")
async def rest_api(slurm: SlurmCluster, slurmrestd: Slurmrestd) -> AsyncIterator[RestApi]:
    """The server's interface."""
    client = rest_client(slurm, slurmrestd.tcp)
    yield RestApi(client)
    await client.close()


@pytest.fixture(scope="session")
def rest(rest_api: RestApi) -> SlurmRest:
    """The transport, speaking to the server."""
    return SlurmRest(rest_api)
