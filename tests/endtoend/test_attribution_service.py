"""A second opinion in a whole recovery: from NVIDIA's own service, and from one of the site that says stop in time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from recovery.model import Action, MilestoneKind
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service, has_reached
from tests.endtoend.simulated_jobs import submit
from tests.opinions.attrsvc import running_attrsvc
from tests.opinions.parts import Reply, standing_in
from tests.simulator.running import RunningSimulator
from tests.stores.servers import NoStore
from workflows.state import Phase, RecoveryState

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(240)]

FAULT = ("--fault", "xid79", "--fault-node", "node02", "--fault-iteration", "15", "--fault-linger-s", "2")
BUG = ("--fault", "segfault", "--fault-iteration", "5")
"""Before its first checkpoint: after one a stop is not followed."""


def opinions(state: RecoveryState) -> list[str]:
    return [entry.text for entry in state.timeline if entry.kind == "opinion"]


async def listed(service: Service, *options: str) -> list[str]:
    """The ids of the service's own jobs in `relight status`; on the same Temporal there are other tests' too."""
    shown = await asyncio.to_thread(service.relight, "status", "--json", *options)
    owners = [row["job"].rpartition("/") for row in json.loads(shown.stdout)["jobs"]]
    return [job_id for cluster, _, job_id in owners if cluster == service.cluster_name]


async def test_the_real_nvrx_attrsvc_is_heard_and_keeps_no_recovery_waiting(
    own_simulator: RunningSimulator, servers: Servers, tmp_path: Path
) -> None:
    try:
        attrsvc = running_attrsvc("0.7", tmp_path, drain_s=1.0)
        running = await asyncio.to_thread(attrsvc.__enter__)
    except NoStore as missing:
        pytest.skip(str(missing))
    service = servers.service(tmp_path)
    nvrx = {"kind": "nvrx", "url": running.url, "copy_dir": str(running.root), "poll_interval_s": 0.5}
    scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
    service.configure(scheduler, poll_interval_s=0.5, attribution=nvrx)
    service.start()
    try:
        job_id = await submit(own_simulator, "unlucky", *FAULT, nodes=2)
        await service.wait_for(job_id, "resumed", has_reached(MilestoneKind.RESUMED, 1))
        state = await service.wait_for(job_id, "an opinion", lambda state: bool(opinions(state)))
        (told,) = opinions(state)
        assert told.startswith("too late, the job has been restarted; nvrx says restart: ")
        assert "matched failure class" in told
        assert state.advice is not None
        assert state.advice.exclude == ("node02",)
        assert list(running.root.iterdir()) == []
    finally:
        await asyncio.to_thread(service.stop)
        await asyncio.to_thread(attrsvc.__exit__, None, None, None)


async def test_a_stop_that_comes_in_time_is_approved_by_its_number(
    own_simulator: RunningSimulator, servers: Servers, tmp_path: Path
) -> None:
    stop = json.dumps({"status": "completed", "action": "stop", "text": "the data set was withdrawn"})
    async with standing_in(lambda asked: Reply(stop, delay_s=3.0)) as site:
        service = servers.service(tmp_path)
        scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
        attribution = {"kind": "http", "name": "ours", "url": site.url, "fast_s": 0}
        service.configure(scheduler, poll_interval_s=0.5, policy={"approval": True}, attribution=attribution)
        service.start()
        try:
            job_id = await submit(own_simulator, "buggy", *BUG)
            waiting = await service.wait_for(
                job_id, "approval", lambda state: state.phase is Phase.AWAITING_APPROVAL, timeout_s=60
            )
            assert waiting.advice is not None
            assert waiting.advice.restarts
            stopped = await service.wait_for(job_id, "a stop", lambda state: state.generation == 2)
            assert stopped.advice is not None
            assert stopped.advice.action is Action.STOP

            refused = await asyncio.to_thread(service.relight, "approve", job_id)
            assert refused.returncode != 0
            assert "with its generation, 2" in refused.stderr
            approved = await asyncio.to_thread(service.relight, "approve", job_id, "--generation", "2")
            assert approved.returncode == 0, approved.stderr
            closed = await service.closed(job_id)
            assert "ours says stop: the data set was withdrawn" in closed.closed
        finally:
            await asyncio.to_thread(service.stop)


async def test_what_is_said_after_the_guards_end_is_on_record_and_keeps_no_job_in_the_status(
    own_simulator: RunningSimulator, servers: Servers, tmp_path: Path
) -> None:
    stop = json.dumps({"status": "completed", "action": "stop", "text": "the data set was withdrawn"})
    async with standing_in(lambda asked: Reply(stop, delay_s=8.0)) as site:
        service = servers.service(tmp_path)
        scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
        attribution = {"kind": "http", "name": "ours", "url": site.url, "fast_s": 0, "timeout_s": 120}
        service.configure(scheduler, poll_interval_s=0.5, attribution=attribution)
        service.start()
        try:
            comment = json.dumps({"relight": {"mode": "act", "max_restarts": 0}})
            job_id = await submit(own_simulator, "buggy", *BUG, comment=comment)
            ended = await service.wait_for(job_id, "its end", lambda state: state.phase is Phase.CLOSED, timeout_s=60)
            assert (opinions(ended), job_id in await listed(service)) == ([], False)
            state = await service.wait_for(job_id, "an opinion", lambda state: bool(opinions(state)))
            assert opinions(state) == ["too late, the guard has ended; ours says stop: the data set was withdrawn"]
            assert job_id in await listed(service, "--all")
        finally:
            await asyncio.to_thread(service.stop)


async def test_a_worker_that_is_stopped_while_a_service_thinks_ends_at_once_and_the_next_one_asks_again(
    own_simulator: RunningSimulator, servers: Servers, tmp_path: Path
) -> None:
    stop = json.dumps({"status": "completed", "action": "stop", "text": "the data set was withdrawn"})
    delays_s = [600.0, 0.0]
    async with standing_in(lambda asked: Reply(stop, delay_s=delays_s.pop(0))) as site:
        service = servers.service(tmp_path)
        scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
        attribution = {"kind": "http", "url": site.url, "fast_s": 0, "timeout_s": 120}
        service.configure(scheduler, poll_interval_s=0.5, mode="observe", attribution=attribution)
        service.start()
        try:
            job_id = await submit(own_simulator, "buggy", *BUG)
            await service.wait_for(
                job_id, "a question", lambda state: state.asking is not None and len(site.asked) == 1
            )
            await asyncio.to_thread(service.stop)
            service.start()
            state = await service.wait_for(job_id, "a stop", lambda state: state.generation == 2)
            assert opinions(state) == ["http says stop: the data set was withdrawn"]
        finally:
            await asyncio.to_thread(service.stop)
