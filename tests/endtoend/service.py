"""relight as its users run it: a worker process that can be killed, on embedded servers, for one cluster."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from activities.audit import AuditTrail
from recovery.audit import AuditEvent
from recovery.model import MilestoneKind
from workflows.job import JobRecovery
from workflows.state import RecoveryState

LOOK_EVERY_S = 0.2


class ServiceFailed(AssertionError):
    """relight did not do in time what a test waits for; the message carries its timeline and log."""


class Service:
    """The worker process and the views on what it does."""

    def __init__(self, directory: Path, address: str, dsn: str, cluster_name: str) -> None:
        self.directory = directory
        self.cluster_name = cluster_name
        self._address = address
        self._dsn = dsn
        self._worker: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    @property
    def config(self) -> Path:
        return self.directory / "relight.yaml"

    def configure(self, scheduler: Mapping[str, object], *, otlp_endpoint: str = "", **cluster: object) -> None:
        """Write the settings: act mode, acknowledged, with everything in `cluster` on top."""
        settings = {
            "state_dir": "state",
            "temporal": {"address": self._address},
            "audit": {"dsn": self._dsn},
            "telemetry": {"otlp_endpoint": otlp_endpoint},
            "clusters": [
                {
                    "name": self.cluster_name,
                    "scheduler": dict(scheduler),
                    "mode": "act",
                    "acknowledge_scheduler_actions": True,
                    "poll_interval_s": 1.0,
                    **cluster,
                }
            ],
        }
        self.config.write_text(yaml.safe_dump(settings))

    def start(self) -> None:
        """Start the worker process, or start it again."""
        with (self.directory / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "workers.cli", "--config", str(self.config), "worker"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    async def serving(self, *, timeout_s: float = 90) -> None:
        """Wait until a worker of this service has said that it serves its cluster."""
        deadline = time.monotonic() + timeout_s
        log = self.directory / "worker.log"
        while "] serving " not in await asyncio.to_thread(log.read_text, errors="replace"):
            if time.monotonic() > deadline:
                raise ServiceFailed(f"the worker does not serve within {timeout_s:.0f} s\n{self.story(None)}")
            await asyncio.sleep(LOOK_EVERY_S)

    @property
    def is_running(self) -> bool:
        """Whether the worker process lives."""
        return self._worker is not None and self._worker.poll() is None

    def relight(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a person would."""
        command = [sys.executable, "-m", "workers.cli", "--config", str(self.config), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def kill(self) -> None:
        """SIGKILL the worker process."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the worker in good order."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._worker is not None:
            self._worker.send_signal(how)
            self._worker.wait(60)
            self._worker = None

    async def state(self, job_id: str) -> RecoveryState | None:
        """Return what the job's workflow knows; None while there is no workflow, or no worker to ask it."""
        if self._client is None:
            self._client = await Client.connect(self._address, data_converter=pydantic_data_converter)
        handle = self._client.get_workflow_handle_for(JobRecovery.run, f"recovery/{self.cluster_name}/{job_id}")
        try:
            return await handle.query(JobRecovery.state)
        except RPCError:
            return None

    async def wait_for(
        self,
        job_id: str,
        what: str,
        predicate: Callable[[RecoveryState], bool],
        *,
        timeout_s: float = 90,
        look_every_s: float = LOOK_EVERY_S,
    ) -> RecoveryState:
        """Wait until the job's state fulfils `predicate` and return it."""
        deadline = time.monotonic() + timeout_s
        while True:
            state = await self.state(job_id)
            if state is not None and predicate(state):
                return state
            if time.monotonic() > deadline:
                raise ServiceFailed(f"job {job_id}, {what}: not within {timeout_s:.0f} s\n{self.story(state)}")
            await asyncio.sleep(look_every_s)

    async def closed(self, job_id: str, *, timeout_s: float = 120) -> RecoveryState:
        """Wait until relight is done with the job."""
        return await self.wait_for(job_id, "closed", lambda state: bool(state.closed), timeout_s=timeout_s)

    async def audited(self, job_id: str) -> tuple[AuditEvent, ...]:
        """Return the job's audit events, from PostgreSQL."""
        trail = AuditTrail(self._dsn)
        try:
            return (await trail.events_of_job(self.cluster_name, job_id, limit=500)).events
        finally:
            await trail.close()

    def story(self, state: RecoveryState | None) -> str:
        """Return the timeline and the end of the worker's log."""
        entries = [f"{e.at:%H:%M:%S} {e.kind} {e.text}" for e in state.timeline] if state else ["no state"]
        log = self.directory / "worker.log"
        return "\n".join([*entries, "--- worker.log", *log.read_text(errors="replace").splitlines()[-30:]])


def has_reached(kind: MilestoneKind, attempt: int) -> Callable[[RecoveryState], bool]:
    """Return a predicate: the milestone stands for the attempt."""
    return lambda state: any(m.kind is kind and m.attempt == attempt for m in state.milestones)
