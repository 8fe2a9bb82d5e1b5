"""The cluster fixture itself: what the tests on real Slurm stand on."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm import cluster as cluster_module
from tests.slurm.cluster import NODES, ClusterFailed, SlurmCluster, why_unavailable

pytestmark = [pytest.mark.slurm]

STATE_SAVED_WITHIN_S = 6.0
START_AND_PRINT = """
import sys
from tests.slurm.cluster import SlurmCluster
from tests.slurm.release import SlurmRelease
cluster = SlurmCluster(SlurmRelease(sys.argv[1]))
cluster.start()
cluster.sbatch("sleep 300", "--nodes=2")
print(cluster.directory, flush=True)
sys.stdin.read()
"""


async def test_a_submitted_job_runs_and_leaves_its_output(slurm: SlurmCluster) -> None:
    job_id = slurm.sbatch("srun bash -c 'echo $SLURMD_NODENAME'", "--nodes=3")
    await slurm.wait_for(lambda: slurm.field(job_id, "JobState") == "COMPLETED", 60, "the job completes")

    lines = (slurm.directory / "work" / f"slurm-{job_id}.out").read_text().split()
    assert len(set(lines)) == 3
    assert set(lines) <= set(NODES)


def test_a_port_that_another_program_took_first_is_given_up_for_another(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = cluster_module.free_ports
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        taken = other.getsockname()[1]
        first = [lambda how_many: [*honest(how_many - 1), taken]]
        monkeypatch.setattr(cluster_module, "free_ports", lambda many: (first.pop() if first else honest)(many))
        cluster = SlurmCluster(slurm.release)
        cluster.start()
        try:
            assert f"Port={taken}" not in cluster.conf.read_text()
        finally:
            cluster.stop()
    assert not first


async def test_a_killed_node_goes_down_and_its_job_is_requeued_by_slurm_itself(slurm: SlurmCluster) -> None:
    job_id = slurm.sbatch("srun sleep 300", "--nodes=1", "--nodelist=node08")
    await slurm.wait_for(lambda: slurm.field(job_id, "JobState") == "RUNNING", 60, "the job runs")
    slurm.kill_slurmd("node08")
    try:
        await slurm.wait_for(lambda: slurm.node_state("node08") == "down*", 90, "the node is down")
        await slurm.wait_for(lambda: slurm.field(job_id, "Restarts") == "1", 30, "Slurm requeues the job")
        assert slurm.field(job_id, "JobState") == "PENDING"
    finally:
        slurm.run("scancel", job_id)
        slurm.restart_slurmd("node08")
        await slurm.wait_for(lambda: slurm.node_state("node08") == "idle", 60, "the node is back")


async def test_jobs_go_on_while_the_controller_is_dead_and_are_known_after_its_restart(slurm: SlurmCluster) -> None:
    job_id = slurm.sbatch("sleep 300")
    await slurm.wait_for(lambda: slurm.field(job_id, "JobState") == "RUNNING", 60, "the job runs")
    await asyncio.sleep(STATE_SAVED_WITHIN_S)
    slurm.kill_slurmctld()
    try:
        with pytest.raises(ClusterFailed, match="Unable to contact slurm controller"):
            slurm.run("squeue")
    finally:
        slurm.restart_slurmctld()
    assert slurm.field(job_id, "JobState") == "RUNNING"
    slurm.run("scancel", job_id)


def test_two_clusters_run_at_once_and_what_a_killed_run_left_is_swept(slurm: SlurmCluster) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", START_AND_PRINT, slurm.release.name]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left_behind = Path(other.stdout.readline().strip())
        assert left_behind.is_dir()
        assert left_behind != slurm.directory
        assert "is UP" in slurm.run("scontrol", "ping")
        time.sleep(4)  # the job steps start: they outlive their daemons
        other.kill()

    third = SlurmCluster(slurm.release)
    third.start()
    third.stop()

    assert not left_behind.exists()
    assert not third.directory.exists()
    assert not _processes_with(str(left_behind))
    assert "is UP" in slurm.run("scontrol", "ping")


def test_why_no_cluster_can_run_is_said_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "Slurm is not installed" in str(why_unavailable())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_unavailable() == "not running as root"


@pytest.mark.parametrize(("tools", "said"), [(("id",), "no apt-get"), ((), "not root")])
def test_the_installer_says_in_a_line_for_each_what_will_be_skipped(
    tmp_path: Path, tools: tuple[str, ...], said: str
) -> None:
    for tool in tools:
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    script = (Path(__file__).parents[1] / "install_packages.sh").read_text()

    done = subprocess.run(["/bin/sh", "-c", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True)

    assert done.returncode == 0
    assert "Slurm cluster" in done.stdout
    for line in done.stdout.splitlines():
        assert said in line
        assert line.endswith(" will be skipped.")


def _processes_with(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                text = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(path.name)
    return found
