"""Many jobs that fail at once: a storm of failures stays within the governor's limits."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.crowd import Fuse
from recovery.audit import AuditKind
from tests.endtoend.conftest import Servers
from tests.governor.webhook import Webhook
from tests.simulator.running import RunningSimulator, running_simulator
from workers.simulator.journal import read_journal

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(300)]

JOBS = 8


@pytest.fixture
async def wide_simulator() -> AsyncIterator[RunningSimulator]:
    """A simulated cluster with a node for each job."""
    with tempfile.TemporaryDirectory(prefix="relight-sim-") as directory:
        async with running_simulator(Path(directory), "--nodes", str(JOBS)) as simulator:
            yield simulator


async def test_a_storm_is_advised_on_at_once_and_worked_off_within_the_limits(
    wide_simulator: RunningSimulator,
    servers: Servers,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = timedelta(seconds=20)
    service = servers.service(tmp_path_factory.mktemp("storm"))
    service.configure(
        {"kind": "simulated", "socket": str(wide_simulator.socket)},
        governor={"restarts": JOBS // 2, "window_s": window.total_seconds()},
        poll_interval_s=0.5,
    )
    numbers = [str(number) for number in range(1, JOBS + 1)]
    async with Webhook().listening() as webhook:
        monkeypatch.setenv("RELIGHT_NOTIFY__WEBHOOK_URL", webhook.address)
        service.start()
        try:
            fuse = Fuse(wide_simulator.directory / "fuse")
            await fuse.submit(wide_simulator.cluster, wide_simulator.scheduler, JOBS)
            for number in numbers:
                await service.wait_for(number, "adopted", lambda state: state.audit_count > 0)
            fuse.light()
            for number in numbers:
                await service.wait_for(number, "advised", lambda state: state.advice is not None)
                await service.wait_for(number, "restarted", lambda state: state.attempt == 1)
        finally:
            await asyncio.to_thread(service.stop)

    requeues = [line for line in read_journal(wide_simulator.directory) if line.request.verb == "requeue"]
    assert len(requeues) == JOBS
    events = [event for number in numbers for event in await service.audited(number)]
    failed_at = min(event.at for event in events if event.kind is AuditKind.DETECTED)
    assert len([line for line in requeues if line.at < failed_at + window]) <= JOBS // 2
    assert AuditKind.KEPT_BACK in {event.kind for event in events}
    kinds = [body["kind"] for body in webhook.bodies]
    assert kinds.count("governor_tripped") == 1
    assert 1 <= kinds.count("failures") <= 3
