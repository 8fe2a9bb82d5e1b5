"""The recovery with the job's lines in a log store only, where a collector puts them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.model import Action, MilestoneKind
from tests.endtoend.conftest import Servers
from tests.endtoend.service import has_reached
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator, until
from tests.stores.collector import collecting
from tests.stores.servers import KINDS, RunningStore
from tests.stores.skipping import store_or_skip

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(150)]

FAULT = ("--fault", "xid79", "--fault-node", "node02", "--fault-iteration", "15", "--fault-linger-s", "4")


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[RunningStore]:
    with store_or_skip(request.param) as store:
        yield store


async def test_a_job_comes_back_without_its_bad_node_by_what_the_store_says(
    store: RunningStore, own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = servers.service(tmp_path_factory.mktemp(store.kind))
    logs = store.settings().model_dump(mode="json")
    service.configure({"kind": "simulated", "socket": str(own_simulator.socket)}, poll_interval_s=0.5, logs=[logs])
    service.start()
    try:
        job_id = await submit(own_simulator, "unlucky", *FAULT, nodes=2)
        record = await until(own_simulator, job_id, lambda record: bool(record.nodes))
        async with collecting(store, job_id, Path(record.stdout), record.nodes, cluster=service.cluster_name):
            advised = await service.wait_for(job_id, "advised", lambda state: state.advice is not None)
            assert advised.verdict is not None
            assert advised.verdict.culprits == ("node02",), service.story(advised)
            assert advised.advice is not None
            assert advised.advice.action is Action.RESTART_EXCLUDE
            assert {evidence.source for evidence in advised.verdict.evidence} == {f"{store.kind}:{job_id}"}
            resumed = await service.wait_for(job_id, "resumed", has_reached(MilestoneKind.RESUMED, 1))
        assert (resumed.progress.resumed_from, resumed.progress.first_iteration) == (10, 11), service.story(resumed)
        assert (await own_simulator.scheduler.job(job_id)).restart_count == 1
        assert "node02" not in resumed.nodes
    finally:
        await asyncio.to_thread(service.stop)
