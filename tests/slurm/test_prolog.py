"""The prolog that takes a job under guard at its start: it helps where it can and never stands in a job's way."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, why_unavailable

DEPLOY = Path(__file__).parents[2] / "deploy" / "slurm"
PROLOG = DEPLOY / "prolog-relight.sh"
TOOLS = ("sh", "timeout", "setsid", "sleep", "cat")


class Site:
    """A host with the tools that the prolog uses and a fake relight and logger, whose calls are written down."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.calls = directory / "calls"
        self.calls.touch()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.install("logger", f'echo "logger $*" >> {self.calls}')

    def install(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def install_relight(self, then: str = "exit 0") -> None:
        self.install("relight", f'echo "relight $*" >> {self.calls}\n{then}')

    def run_prolog(self, **job: str) -> float:
        """Run the prolog as slurmctld does and return how many seconds it took; it must say nothing and exit with 0."""
        began = time.monotonic()
        text = PROLOG.read_text().replace(":/usr/local/bin:/usr/bin:/bin:/opt/relight/bin", "")
        done = subprocess.run(
            ["sh", "-c", text], env={"PATH": str(self.bin), **job}, capture_output=True, text=True, timeout=20
        )
        assert (done.returncode, done.stdout) == (0, "")
        return time.monotonic() - began

    def wait_for_call(self, call: str) -> None:
        deadline = time.monotonic() + 30
        while call not in self.calls.read_text():
            assert time.monotonic() < deadline, f"no {call!r} in {self.calls.read_text()!r}"
            time.sleep(0.05)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_starting_job_is_handed_to_relight(site: Site) -> None:
    site.install_relight()
    site.run_prolog(SLURM_JOB_ID="123")
    site.wait_for_call("relight watch --if-opted-in 123\n")


def test_a_task_of_an_array_goes_by_array_and_task(site: Site) -> None:
    site.install_relight()
    site.run_prolog(SLURM_JOB_ID="130", SLURM_ARRAY_JOB_ID="120", SLURM_ARRAY_TASK_ID="0")
    site.wait_for_call("relight watch --if-opted-in 120_0\n")


def test_a_relight_that_hangs_delays_no_job(site: Site) -> None:
    site.install_relight(then="exec sleep 8")
    assert site.run_prolog(SLURM_JOB_ID="123") < 4
    site.wait_for_call("relight watch --if-opted-in 123\n")


def test_a_relight_that_hangs_is_ended(site: Site) -> None:
    site.install_relight(then="exec sleep 600")
    (site.bin / "timeout").unlink()
    site.install("timeout", f'[ "$3" = 30 ] && shift 3 && exec {shutil.which("timeout")} -k 1 1 "$@"')
    site.run_prolog(SLURM_JOB_ID="123")
    site.wait_for_call("relight watch exited with 124")


@pytest.mark.parametrize(("then", "told"), [("exit 1", "exited with 1"), ("kill -9 $$", "exited with")])
def test_a_relight_that_fails_is_told_to_syslog_and_fails_no_job(site: Site, then: str, told: str) -> None:
    site.install_relight(then=then)
    site.run_prolog(SLURM_JOB_ID="123")
    site.wait_for_call(f"logger -t prolog-relight job 123 was not taken under guard: relight watch {told}")


def test_a_missing_relight_is_told_to_syslog_and_fails_no_job(site: Site) -> None:
    site.run_prolog(SLURM_JOB_ID="123")
    site.wait_for_call("exited with 127")


def test_even_a_host_without_any_tool_fails_no_job(site: Site) -> None:
    for tool in ("timeout", "setsid", "logger"):
        (site.bin / tool).unlink()
    site.run_prolog(SLURM_JOB_ID="123")


@pytest.mark.parametrize("job_id", ["", "1; reboot", "$(reboot)", "--help", "1 2"])
def test_what_is_no_job_id_is_not_handed_on(site: Site, job_id: str) -> None:
    site.install_relight()
    site.run_prolog(SLURM_JOB_ID=job_id)
    time.sleep(0.5)
    assert site.calls.read_text() == ""


@pytest.fixture
def cluster_with_prolog(site: Site) -> Iterator[SlurmCluster]:
    """A cluster that includes deploy/slurm/relight.conf, with the prolog at a path of this test."""
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"real Slurm tests skipped: {reason}")
    site.bin.parent.chmod(0o755)
    wrapper = site.bin / "prolog"
    site.install("prolog", f"PATH={site.bin}:$PATH exec sh {PROLOG}")
    fragment = site.bin.parent / "relight.conf"
    fragment.write_text((DEPLOY / "relight.conf").read_text().replace("/etc/slurm/prolog-relight.sh", str(wrapper)))
    cluster = SlurmCluster(extra_conf=f"Include {fragment}")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.mark.slurm
async def test_slurm_itself_runs_the_prolog_and_starts_the_job_while_relight_hangs(
    site: Site, cluster_with_prolog: SlurmCluster
) -> None:
    slurm = cluster_with_prolog
    go = site.bin.parent / "go"
    site.install_relight(then=f'until [ -e {go} ]; do sleep 0.1; done; echo "done $3" >> {site.calls}')

    singles = [slurm.sbatch("sleep 60") for _ in range(6)]
    jobs = [*singles, *(f"{slurm.sbatch('sleep 60', '--array=7')}_7" for _ in range(6))]

    await slurm.wait_for(
        lambda: all(slurm.field(job, "JobState") == "RUNNING" for job in jobs), 60, "all run while relight hangs"
    )
    go.touch()
    for job in jobs:
        site.wait_for_call(f"relight watch --if-opted-in {job}\n")
        site.wait_for_call(f"done {job}\n")
