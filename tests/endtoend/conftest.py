"""Servers and services for the suite: one on the real cluster, one on a simulated one."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.embedded.places import open_directory
from tests.endtoend.service import Service
from tests.simulator.running import RunningSimulator, running_simulator
from tests.slurm.cluster import SlurmCluster
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.temporal import EmbeddedTemporal
from workers.worker import search_attributes


@dataclass(frozen=True)
class Servers:
    """Embedded Temporal and PostgreSQL."""

    temporal: EmbeddedTemporal
    postgres: EmbeddedPostgres

    def service(self, directory: Path) -> Service:
        """Return a service on these servers whose files and cluster are its own."""
        return Service(directory, self.temporal.address, self.postgres.dsn, directory.name)


@pytest.fixture(scope="session")
async def servers() -> AsyncIterator[Servers]:
    with open_directory() as directory:
        temporal = EmbeddedTemporal(directory / "temporal", search_attributes=search_attributes())
        postgres = EmbeddedPostgres(directory / "postgres")
        async with temporal, postgres:
            yield Servers(temporal, postgres)


@pytest.fixture(scope="module")
def service(slurm: SlurmCluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The worker process, serving the real cluster in act mode."""
    service = servers.service(tmp_path_factory.mktemp("real"))
    service.configure(slurm.scheduler_settings)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
async def simulator() -> AsyncIterator[RunningSimulator]:
    # pytest's own directories are too deep for a socket's path.
    with tempfile.TemporaryDirectory(prefix="relight-sim-") as directory:
        async with running_simulator(Path(directory)) as simulator:
            yield simulator


@pytest.fixture
async def own_simulator() -> AsyncIterator[RunningSimulator]:
    """A simulated cluster for one test, with no service on it yet."""
    with tempfile.TemporaryDirectory(prefix="relight-sim-") as directory:
        async with running_simulator(Path(directory)) as simulator:
            yield simulator


@pytest.fixture(scope="module")
def simulated_service(
    simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The worker process, serving a simulated cluster in act mode."""
    service = servers.service(tmp_path_factory.mktemp("simulated"))
    service.configure({"kind": "simulated", "socket": str(simulator.socket)}, poll_interval_s=0.5)
    service.start()
    yield service
    service.stop()
