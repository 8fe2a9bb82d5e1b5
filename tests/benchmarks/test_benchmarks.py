"""The benchmarks run: their smallest forms, for their shape and never for their times."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import Figure, percentile
from benchmarks.latency import recover, serving
from tests.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
SMALLEST = {
    "jobs": ("--jobs", "5", "--seconds", "1", "--warm-up", "1"),
    "storm": ("--jobs", "4", "--told-s", "5"),
    "history": ("--leases", "1", "--lease-s", "1"),
    "logs": ("--lines", "1", "--followed", "20", "--seconds", "2"),
    "cli": ("--runs", "1"),
    "scanner": ("--gigabytes", "0.02", "--stream-gigabytes", "0.02"),
    "bulk": ("--large-jobs", "200"),
}


@pytest.fixture(scope="module")
async def reports() -> dict[str, dict[str, Any]]:
    """All of them at once: they mostly wait."""
    outputs = await asyncio.gather(*(run(name, *options) for name, options in SMALLEST.items()))
    return dict(zip(SMALLEST, outputs, strict=True))


async def run(name: str, *options: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", name, "--json", *options),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    (report,) = json.loads(output)["reports"]
    return {figure["name"]: figure for figure in report["figures"]}


@pytest.mark.temporal
@pytest.mark.postgres
async def test_a_crowd_of_jobs_is_followed_with_one_bulk_read_for_all(reports: dict[str, dict[str, Any]]) -> None:
    figures = reports["jobs"]
    assert figures["other questions to the scheduler"]["value"] == 0
    assert figures["bulk reads of the scheduler"]["value"] < 5
    assert figures["worker's resident memory"]["value"] > 0


@pytest.mark.temporal
@pytest.mark.postgres
async def test_a_storm_is_advised_on_acted_on_and_told(reports: dict[str, dict[str, Any]]) -> None:
    figures = reports["storm"]
    assert figures["restarts"]["value"] == 4
    assert figures["advised on, median"]["value"] > 0
    assert figures["scheduler calls per restart"]["value"] >= 3
    assert figures["messages to people"]["value"] >= 1


@pytest.mark.temporal
@pytest.mark.postgres
async def test_a_healthy_job_adds_six_events_a_lease(reports: dict[str, dict[str, Any]]) -> None:
    figures = reports["history"]
    assert figures["history events of a healthy job"]["value"] == 12
    assert figures["history events of a healthy job"]["met"]
    assert figures["history bytes of a healthy job"]["value"] > 0


async def test_a_line_is_timed_through_each_log_source(reports: dict[str, dict[str, Any]]) -> None:
    figures = reports["logs"]
    timed = [name for name in figures if name.endswith("line to report, median")]
    assert {name.partition(":")[0] for name in timed} >= {"files", "Loki's API, tail", "Loki's API, polled"}
    assert all(figures[name]["value"] > 0 for name in timed)
    assert figures["... lines not heard"]["value"] == figures["... lines heard twice"]["value"] == 0


async def test_the_command_line_is_held_against_a_bare_interpreter(reports: dict[str, dict[str, Any]]) -> None:
    assert reports["cli"]["relight --help, CPU, median"]["beside"].endswith("x python -c pass")


async def test_a_large_answer_of_each_version_is_read_within_its_memory(reports: dict[str, dict[str, Any]]) -> None:
    figures = reports["bulk"]
    for version in ("22.05", "24.11", "26.05"):
        assert figures[f"Slurm {version}, CPU"]["value"] > 0
        assert figures[f"Slurm {version}, memory for one reading"]["met"]


async def test_the_scanner_keeps_within_its_memory_beside_ripgrep(reports: dict[str, dict[str, Any]]) -> None:
    figures = reports["scanner"]
    if not figures:
        pytest.skip("ripgrep is not installed")
    assert figures["1 line in 100 known: rg -c -f"]["value"] > 0
    assert figures["peak memory over the stream, re2"]["met"]


@pytest.mark.slurm
@pytest.mark.temporal
@pytest.mark.postgres
async def test_the_steps_of_a_recovery_are_timed_in_their_order(slurm: SlurmCluster) -> None:
    async with serving(slurm) as servers:
        recovery = await recover(slurm, servers, linger_s=0.0)
    assert 0 < recovery.advised_s < recovery.stored_s < recovery.acted_s < recovery.resumed_s


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([1.0], 95) == 1.0
    assert percentile([float(value) for value in range(1, 11)], 95) == 10.0
    assert percentile([float(value) for value in range(1, 101)], 95) == 95.0


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    assert Figure("x", 1.0, "s").met is None
    assert Figure("x", 1.0, "s", 1.0).met
    assert Figure("x", 1.1, "s", 1.0).met is False
