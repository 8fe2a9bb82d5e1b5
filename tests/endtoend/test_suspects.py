"""What two jobs found out about a node keeps a third one off it, whose own failure tells nothing of any node."""

from __future__ import annotations

import asyncio

import pytest

from recovery.model import Action
from tests.endtoend.conftest import Servers
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(150)]

BAD_NODE = "node02"
"""The simulated cluster fills its free nodes in their order: each new job of two nodes gets it."""
GPU_FAULT = ("--fault", "xid79", "--fault-node", BAD_NODE, "--fault-iteration", "3")
HANG = ("--fault", "hang", "--fault-iteration", "12")


async def test_a_failure_that_is_located_nowhere_is_kept_off_the_node_that_failed_two_others(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = servers.service(tmp_path_factory.mktemp("suspects"))
    service.configure({"kind": "simulated", "socket": str(own_simulator.socket)}, poll_interval_s=0.5)
    service.start()
    try:
        for name in ("first", "second"):
            job_id = await submit(own_simulator, name, *GPU_FAULT, nodes=2)
            await service.wait_for(job_id, "restarted elsewhere", lambda state: state.attempt == 1)
        opt_in = {"relight": {"mode": "act", "hang_after_s": 5}}
        third = await submit(own_simulator, "third", *HANG, nodes=2, comment=opt_in)
        state = await service.wait_for(third, "restarted elsewhere", lambda state: state.attempt == 1)
        shown = await asyncio.to_thread(service.relight, "status")
        repaired = ("readmit", "--cluster", service.cluster_name, BAD_NODE, "-m", "new GPU")
        readmitted = await asyncio.to_thread(service.relight, *repaired)
        shown_then = await asyncio.to_thread(service.relight, "status")
    finally:
        await asyncio.to_thread(service.stop)

    assert state.verdict is not None
    assert state.advice is not None
    assert state.verdict.culprits == (), "nothing in its own evidence names a node"
    assert (state.advice.action, state.advice.rule) == (Action.RESTART_EXCLUDE, "suspect_node")
    assert [exclusion.node for exclusion in state.exclusions] == [BAD_NODE]
    assert f"{BAD_NODE} is under suspicion by jobs 1, 2" in shown.stdout
    assert (readmitted.returncode, readmitted.stdout) == (0, "readmit accepted\n"), readmitted.stderr
    assert "suspicion" not in shown_then.stdout
