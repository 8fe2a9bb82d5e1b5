"""The recovery while the site's store of metrics keeps everybody waiting: the same, and it says what it did not see."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from recovery.model import Action, MilestoneKind
from tests.endtoend.conftest import Servers
from tests.endtoend.service import has_reached
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(150)]

FAULT = ("--fault", "xid79", "--fault-node", "node02", "--fault-iteration", "15", "--fault-linger-s", "2")


async def test_a_job_comes_back_while_the_store_of_metrics_never_answers(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def keep_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    stalled = await asyncio.start_server(keep_waiting, "127.0.0.1", 0)
    service = servers.service(tmp_path_factory.mktemp("metrics"))
    url = f"http://127.0.0.1:{stalled.sockets[0].getsockname()[1]}"
    scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
    service.configure(scheduler, poll_interval_s=0.5, metrics={"kind": "prometheus", "url": url, "timeout_s": 1})
    service.start()
    try:
        job_id = await submit(own_simulator, "unlucky", *FAULT, nodes=2)
        resumed = await service.wait_for(job_id, "resumed", has_reached(MilestoneKind.RESUMED, 1))
        assert resumed.verdict is not None
        assert resumed.verdict.culprits == ("node02",)
        assert "no answer within 1 s" in resumed.verdict.blind_to[0]
        assert resumed.advice is not None
        assert resumed.advice.action is Action.RESTART_EXCLUDE
        show = [sys.executable, "-m", "workers.cli", "--config", str(service.config), "show", job_id]
        shown = await asyncio.to_thread(subprocess.run, show, capture_output=True, text=True, check=True)
        assert f"blind to  metrics unreadable: prometheus at {url}: no answer within 1 s" in shown.stdout
    finally:
        await asyncio.to_thread(service.stop)
        stalled.close()
