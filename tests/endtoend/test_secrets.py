"""A secret that a job prints is found nowhere that relight keeps or shows anything."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml
from temporalio.client import Client

from activities.scheduler.simulated_wire import JobSpec
from tests.endtoend.conftest import Servers
from tests.endtoend.simulated_jobs import ACT
from tests.simulator.running import RunningSimulator

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(150)]

SECRETS = ("hf_abcdefghijklmnopqrstuv", "hunter2222", "corp-0123456789ab")
SCRIPT = """
echo 'HF_TOKEN=hf_abcdefghijklmnopqrstuv starts'
echo 'Traceback (most recent call last):'
echo '  File "/w/train.py", line 3, in main'
echo 'RuntimeError: CUDA error: password: hunter2222 of corp-0123456789ab, device-side assert triggered'
exit 1
"""


async def test_what_a_job_prints_of_secrets_stays_in_its_own_log(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = servers.service(tmp_path_factory.mktemp("secrets"))
    service.configure({"kind": "simulated", "socket": str(own_simulator.socket)}, poll_interval_s=0.5)
    settings = yaml.safe_load(service.config.read_text())
    service.config.write_text(yaml.safe_dump({**settings, "redaction": {"patterns": ["corp-[0-9a-z]{12}"]}}))
    service.start()
    try:
        spec = JobSpec(argv=("sh", "-c", SCRIPT), name="leaks", comment=json.dumps(ACT), output="%x-%j.log")
        job_id = await own_simulator.cluster.submit(spec)
        state = await service.wait_for(job_id, "advised", lambda state: state.advice is not None)
        assert state.verdict is not None
        assert "[redacted]" in state.verdict.model_dump_json()
        client = await Client.connect(servers.temporal.address)
        history = await client.get_workflow_handle(f"recovery/{service.cluster_name}/{job_id}").fetch_history()
        shown = await asyncio.to_thread(service.relight, "show", job_id)
        kept = {
            "history": b"".join(event.SerializeToString() for event in history.events).decode(errors="replace"),
            "audit": "".join(event.model_dump_json() for event in await service.audited(job_id)),
            "show": shown.stdout + shown.stderr,
            "show --json": (await asyncio.to_thread(service.relight, "show", job_id, "--json")).stdout,
            "worker's log": (service.directory / "worker.log").read_text(),
            "evidence": "".join(
                file.read_text(errors="replace") for file in (service.directory / "state").rglob("*") if file.is_file()
            ),
        }
        assert "[redacted]" in kept["history"], "it is looked for where it would be"
        leaked = [(where, secret) for where, text in kept.items() for secret in SECRETS if secret in text]
        assert leaked == [], service.story(state)
    finally:
        await asyncio.to_thread(service.stop)
