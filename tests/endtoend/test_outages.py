"""Recovery goes on while the audit trail's database is away, and its trace leaves while the workflow lives."""

from __future__ import annotations

import asyncio

import pytest

from recovery.audit import AuditKind
from recovery.model import MilestoneKind
from tests.embedded.places import open_directory
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service, has_reached
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator
from tests.telemetry.receiver import Receiver
from workers.embedded.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(150)]

FAULT = ("--fault", "xid79", "--fault-node", "node01", "--fault-iteration", "15")


async def test_recovery_goes_on_without_postgresql_and_every_event_arrives_later(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with open_directory() as directory:
        postgres = EmbeddedPostgres(directory / "postgres")
        await postgres.start()
        place = tmp_path_factory.mktemp("outage")
        service = Service(place, servers.temporal.address, postgres.dsn, place.name)
        service.configure({"kind": "simulated", "socket": str(own_simulator.socket)}, poll_interval_s=0.5)
        service.start()
        try:
            job_id = await submit(own_simulator, "unlucky", *FAULT, nodes=2)
            await service.wait_for(job_id, "adopted", lambda state: state.audit_count > 0 and not state.unaudited)
            await postgres.stop()
            state = await service.wait_for(job_id, "resumed", has_reached(MilestoneKind.RESUMED, 1))
            assert (await own_simulator.scheduler.job(job_id)).restart_count == 1
            assert state.unaudited, "the events wait in the workflow"

            await postgres.start()
            state = await service.wait_for(job_id, "all stored", lambda state: not state.unaudited)
            events = await service.audited(job_id)
            assert len(events) == len({event.key for event in events}) == state.audit_count
            kinds = [event.kind for event in events]
            assert kinds.index(AuditKind.ADVISED) < kinds.index(AuditKind.ORDERED) < kinds.index(AuditKind.RECONCILED)
        finally:
            await asyncio.to_thread(service.stop)
            await postgres.stop()


async def test_a_recovery_is_exported_as_one_trace_while_its_workflow_lives(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    receiver = Receiver()
    service = servers.service(tmp_path_factory.mktemp("traced"))
    scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
    service.configure(scheduler, otlp_endpoint=receiver.address, poll_interval_s=0.5)
    service.start()
    try:
        job_id = await submit(own_simulator, "traced", *FAULT, nodes=2)
        state = await service.wait_for(job_id, "exported", lambda _: bool(receiver.spans))
        assert not state.closed
        assert len({span.trace_id for span in receiver.spans}) == 1
        names = [span.name for span in receiver.spans]
        root, *steps = names
        assert root == f"recover {service.cluster_name}/{job_id}"
        assert steps == ["attribute", "decide", "act", "wait until eligible", "wait for nodes", "start up and resume"]
    finally:
        await asyncio.to_thread(service.stop)
        receiver.close()
