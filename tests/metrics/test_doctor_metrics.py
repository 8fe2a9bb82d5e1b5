"""`relight doctor metrics` against real stores, well and with one thing wrong at a time."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.stores import Exporter, MetricStore
from tests.simulator.running import RunningSimulator, running_simulator

pytestmark = pytest.mark.timeout(240)

NODES = [f"node{n:02d}" for n in range(1, 9)]


def series(node: str) -> list[str]:
    gpu = f'{{gpu="0",Hostname="{node}",hpc_job="12"}}'
    return [
        *(f"{name}{gpu} 1" for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")),
        *(f"{name}{gpu} 0" for name in ("DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_SM_CLOCK")),
        f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu} 0",
        *(f"DCGM_FI_DEV_{limit}_VIOLATION{gpu} 7000" for limit in ("THERMAL", "POWER")),
        f'node_vmstat_oom_kill{{instance="{node}.example.org:9100"}} 0',
    ]


@dataclass
class Site:
    """A cluster and its store as relight's settings describe them."""

    simulator: RunningSimulator
    store: MetricStore
    directory: Path

    async def doctor(self, *options: str, **metrics: Any) -> tuple[int, str]:
        """Run the doctor and return its exit code and what it printed."""
        here = {"name": "alpha", "scheduler": {"kind": "simulated", "socket": str(self.simulator.socket)}}
        settings = {"kind": "prometheus", "url": self.store.url, **metrics}
        config = self.directory / "relight.yaml"
        config.write_text(json.dumps({"clusters": [{**here, "metrics": settings}]}))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "workers.cli", "--config", str(config), "doctor", "metrics", *options),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()

    async def checks(self, **metrics: Any) -> tuple[int, dict[str, dict[str, str]]]:
        """Run the doctor and return its exit code and its checks by name."""
        code, said = await self.doctor("--json", **metrics)
        return code, {check["name"]: check for check in json.loads(said)["clusters"]["alpha"]}


@pytest.fixture
async def site(store: MetricStore, exporter: Exporter, tmp_path: Path) -> AsyncIterator[Site]:
    exporter.show(*(line for node in NODES for line in series(node)))
    async with running_simulator(tmp_path) as simulator:
        yield Site(simulator, store, tmp_path)


async def test_the_doctor_says_what_of_a_store_serves_and_what_is_missing(site: Site) -> None:
    deadline = time.monotonic() + 90
    code, checks = await site.checks()
    scraped = ("gpu_activity", "labels.gpu_node", "labels.host_node")
    while time.monotonic() < deadline and any(checks.get(name, {}).get("finding") != "ok" for name in scraped):
        code, checks = await site.checks()
    assert code == 0
    assert {name: check["finding"] for name, check in checks.items()} == {
        "reach": "ok",
        "clock": "ok",
        "gpu_activity": "ok",
        "gpu_faults": "warning",
        "gpu_links": "warning",
        "host": "warning",
        "labels.gpu_node": "ok",
        "labels.host_node": "ok",
        "labels.job_id": "ok",
        "gpu age": "ok",
        "host age": "ok",
    }
    assert "as DCGM_FI_DEV_CLOCKS_EVENT_REASONS" in checks["gpu_activity"]["says"]
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" in checks["gpu_faults"]["says"]
    assert "the exporter's counters file" in checks["gpu_faults"]["remedy"]
    assert "its infiniband collector" in checks["host"]["remedy"]

    wrong = {"gpu_node": "hostname", "job_id": "slurm_job"}
    code, checks = await site.checks(labels=wrong)
    assert (code, checks["labels.gpu_node"]["remedy"]) == (1, "set labels.gpu_node: Hostname")
    assert checks["labels.job_id"]["finding"] == "warning"

    code, checks = await site.checks(matchers={"cluster": "beta"})
    assert (code, checks["series"]["finding"]) == (1, "failed")
    assert "`matchers`" in checks["series"]["remedy"]

    code, checks = await site.checks(url=f"{site.store.url}/elsewhere")
    assert (code, checks["reach"]["finding"]) == (1, "failed")
    assert "`url`" in checks["reach"]["remedy"]

    code, said = await site.doctor()
    assert code == 0
    assert f"cluster alpha, {site.store.url}" in said
    assert "Hostname names all 8 of Slurm's nodes" in said
