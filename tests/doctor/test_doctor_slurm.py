"""`relight doctor slurm` on a real cluster, well and with one thing wrong at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.accounting import AccountedCluster
from workers.cli.main import run_command

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _restored(accounted: AccountedCluster) -> Iterator[None]:
    """Every test leaves the cluster as it was."""
    before = accounted.conf.read_text()
    yield
    if accounted.conf.read_text() != before:
        accounted.conf.write_text(before)
        accounted.run("scontrol", "reconfigure")


@dataclass
class Site:
    """The cluster as relight's settings describe it."""

    cluster: AccountedCluster
    directory: Path
    capsys: pytest.CaptureFixture[str]
    settings: dict[str, Any] = field(default_factory=dict)
    wrapper: str = ""
    """A shell line that stands in for scontrol; ``$@`` are its arguments."""

    def doctor(self, *options: str) -> tuple[int, str]:
        """Run the doctor and return its exit code and what it printed."""
        scheduler: dict[str, Any] = {"kind": "cli", "slurm_conf": str(self.cluster.conf), "command_timeout_s": 10}
        if self.wrapper:
            scheduler["bin_dir"] = str(self._wrapped())
        here = {"name": "relight-test", "scheduler": scheduler, "mode": "act", "acknowledge_scheduler_actions": True}
        config = self.directory / "relight.yaml"
        config.write_text(json.dumps({"clusters": [here | self.settings]}))
        self.capsys.readouterr()
        code = run_command(["--config", str(config), "doctor", "slurm", *options])
        return code, self.capsys.readouterr().out

    def checks(self, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
        """Run the doctor and return its exit code and its checks by name."""
        code, said = self.doctor("--json", *options)
        return code, {check["name"]: check for check in json.loads(said)["clusters"]["relight-test"]}

    def _wrapped(self) -> Path:
        directory = self.directory / "bin"
        directory.mkdir(exist_ok=True)
        (directory / "scontrol").write_text(f"#!/bin/sh\n{self.wrapper}\n")
        (directory / "scontrol").chmod(0o755)
        return directory

    def reconfigure(self, *lines: str) -> None:
        """Put lines into slurm.conf in place of those of the same keys, and have slurmctld read it."""
        keys = tuple(line.partition("=")[0] + "=" for line in lines)
        kept = [line for line in self.cluster.conf.read_text().splitlines() if not line.startswith(keys)]
        self.cluster.conf.write_text("\n".join([*lines, *kept]) + "\n")
        self.cluster.run("scontrol", "reconfigure")


@pytest.fixture
def site(accounted: AccountedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    return Site(accounted, tmp_path, capsys)


def test_a_cluster_that_is_well_passes(site: Site) -> None:
    code, checks = site.checks()

    assert {name: check["says"] for name, check in checks.items() if check["finding"] != "ok"} == {}
    assert code == 0
    assert {"reach", "version", "rights", "AdminComment", "MinJobAge", "slurmdbd", "partitions"} <= checks.keys()


@contextmanager
def running_job(cluster: AccountedCluster) -> Iterator[None]:
    """A job runs while the context is open."""
    job_id = cluster.sbatch("exec sleep 600")
    try:
        asyncio.run(cluster.wait_for(lambda: cluster.field(job_id, "JobState") == "RUNNING", 30, "the job runs"))
        yield
    finally:
        cluster.run("scancel", job_id)


def test_the_scripts_of_running_jobs_are_read_and_whether_others_jobs_may_be_submitted_is_said(site: Site) -> None:
    site.settings["policy"] = {"resubmit": True}
    with running_job(site.cluster):
        code, checks = site.checks()

    assert code == 0
    assert checks["batch scripts"]["finding"] == checks["resubmission"]["finding"] == "ok"
    assert "1 of the 1 newest running jobs" in checks["batch scripts"]["says"]


def test_an_account_that_gets_no_scripts_is_found_once_a_job_runs(site: Site) -> None:
    site.wrapper = 'case "$*" in *batch_script*) echo "Invalid user id" >&2;; *) exec /usr/bin/scontrol "$@";; esac'
    with running_job(site.cluster):
        code, checks = site.checks()

    assert code == 0
    assert checks["batch scripts"]["finding"] == "warning"


def test_the_table_has_a_line_for_each_check_and_one_for_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    site.settings["act_partitions"] = ["canary"]
    code, said = site.doctor()

    title, heading, *lines = said.splitlines()
    assert code == 1
    assert title == "cluster relight-test, scheduler cli, mode act"
    assert heading.split() == ["CHECK", "FINDING", "WHAT"]
    at = next(number for number, line in enumerate(lines) if line.startswith("partitions"))
    assert lines[at].split()[:2] == ["partitions", "failed"]
    assert lines[at + 1].strip().split(maxsplit=2) == ["to", "do", "there are: main, other"]


@dataclass(frozen=True)
class Planted:
    """One thing that is wrong, and which check finds it."""

    plant: Callable[[Site], None]
    check: str
    finding: str
    remedy: str


EDITED_SCONTROL = 'env PATH=/usr/local/bin:/usr/bin:/bin scontrol "$@" | sed "{}"'


def edited(expression: str) -> Callable[[Site], None]:
    """What scontrol says, changed."""

    def plant(site: Site) -> None:
        site.wrapper = EDITED_SCONTROL.format(expression)

    return plant


def set_to(**settings: Any) -> Callable[[Site], None]:
    return lambda site: site.settings.update(settings)


MISCONFIGURATIONS = {
    "jobs are forgotten at once": Planted(
        lambda site: site.reconfigure("MinJobAge=2"), "MinJobAge", "failed", "MinJobAge=300"
    ),
    "no job may be requeued": Planted(
        lambda site: site.reconfigure("JobRequeue=0"), "JobRequeue", "failed", "JobRequeue=1"
    ),
    "comments are not kept": Planted(
        lambda site: site.reconfigure("AccountingStoreFlags=job_script"),
        "AccountingStoreFlags",
        "warning",
        "add job_comment",
    ),
    "preempted jobs are cancelled": Planted(
        lambda site: site.reconfigure("PreemptType=preempt/partition_prio", "PreemptMode=CANCEL"),
        "PreemptMode",
        "warning",
        "PreemptMode=REQUEUE",
    ),
    "Slurm holds after one requeue of its own": Planted(
        edited(r"s/^MinJobAge .*/&\nMaxBatchRequeue = 1/"), "MaxBatchRequeue", "warning", "MaxBatchRequeue=5"
    ),
    "the clocks differ": Planted(edited(r"s/\(data as of\) [0-9]*/\1 1772366400/"), "clock", "failed", "chrony"),
    "Slurm is too old": Planted(
        edited(r"s/^\(SLURM_VERSION *=\).*/\1 20.11.9/"), "version", "failed", "22.05 or later"
    ),
    "the backup controller is down": Planted(
        edited(r"s/^Slurmctld(primary) at .*/&\nSlurmctld(backup) at ctl2 is DOWN/"), "controllers", "warning", "start"
    ),
    "a requeued job waits an hour": Planted(
        lambda site: (
            edited(r"s/^AuthInfo .*/&,cred_expire=3600/")(site),
            set_to(policy={"clear_requeue_delay": False})(site),
        )[0],
        "requeue delay",
        "warning",
        "clear_requeue_delay",
    ),
    "no accounts are kept": Planted(
        edited(r"s/^\(AccountingStorageType *=\).*/\1 (null)/"), "accounting", "warning", "slurmdbd"
    ),
    "a partition has another name": Planted(set_to(act_partitions=["canary"]), "partitions", "failed", "main, other"),
    "the cluster has another name": Planted(
        edited(r"s/^\(ClusterName *=\).*/\1 alpha/"), "cluster name", "warning", "alpha"
    ),
    "nobody acknowledged": Planted(
        set_to(acknowledge_scheduler_actions=False), "mode", "warning", "acknowledge_scheduler_actions"
    ),
}


@pytest.mark.parametrize("planted", MISCONFIGURATIONS.values(), ids=MISCONFIGURATIONS.keys())
def test_what_is_wrong_is_found_and_how_to_mend_it_is_said(site: Site, planted: Planted) -> None:
    planted.plant(site)

    code, checks = site.checks()

    found = checks[planted.check]
    assert (found["finding"], code) == (planted.finding, 1 if planted.finding == "failed" else 0)
    assert planted.remedy in found["remedy"]
    others = {name for name, check in checks.items() if check["finding"] != "ok"} - {planted.check}
    assert others <= {"slurmdbd"}, checks


def test_an_account_without_rights_is_found(site: Site) -> None:
    edited(r"s/^\(SlurmUser *=\).*/\1 slurm(64030)/")(site)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.schedulers.own_account", lambda: "nobody")
        code, checks = site.checks()

    assert code == 1
    assert checks["rights"]["finding"] == checks["AdminComment"]["finding"] == "failed"
    assert "sacctmgr add user nobody" in checks["rights"]["remedy"]


def test_a_slurmdbd_that_is_away_is_found(site: Site) -> None:
    site.cluster.kill_slurmdbd()
    try:
        code, checks = site.checks()
    finally:
        site.cluster.restart_slurmdbd()

    assert code == 1
    assert checks["slurmdbd"]["finding"] == "failed"
    assert "start slurmdbd" in checks["slurmdbd"]["remedy"]


def test_a_controller_that_can_not_be_reached_is_found_and_nothing_else_is_said(site: Site) -> None:
    nowhere = site.directory / "slurm.conf"
    nowhere.write_text(site.cluster.conf.read_text().replace("SlurmctldPort=", "MessageTimeout=2\nSlurmctldPort=1\n#"))
    site.settings["scheduler"] = {"kind": "cli", "slurm_conf": str(nowhere)}

    code, checks = site.checks("--probe")

    assert code == 1
    assert [*checks] == ["reach"]
    assert "no answer through cli" in checks["reach"]["says"]


def test_a_probe_does_what_a_recovery_does_and_leaves_nothing(site: Site) -> None:
    code, checks = site.checks("--probe")

    steps = ["submit", "start", "requeue", "exclude", "release", "cancel"]
    assert {step: checks[f"probe: {step}"]["finding"] for step in steps} == dict.fromkeys(steps, "ok")
    assert code == 0
    job_id = checks["probe: submit"]["says"].split()[-1]
    assert site.cluster.field(job_id, "JobState") == "CANCELLED"
    assert site.cluster.field(job_id, "Restarts") == "1"


def test_a_probe_that_can_not_start_says_so_and_is_cancelled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.doctor.slurm_probe.START_S", 2.0)
    site.cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        code, checks = site.checks("--probe")
    finally:
        site.cluster.run("scontrol", "update", "PartitionName=main", "State=UP")

    assert code == 1
    assert "should run" in checks["probe: requeue"]["says"]
    job_id = checks["probe: submit"]["says"].split()[-1]
    assert checks["probe: cancel"]["finding"] == "ok"
    assert site.cluster.field(job_id, "JobState") == "CANCELLED"
