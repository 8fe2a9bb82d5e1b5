"""What `relight doctor logs` finds on stores and files that are well, and with one thing wrong at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.logs_site import WELL, looked_at, new_tenant, place, running_job, sent, without
from tests.logs.test_store_errors import HTML, answer, answering
from tests.logs.test_store_tls import serving
from tests.rest.test_tls import Authority, tls_of
from tests.stores.servers import KINDS, RunningStore, free_port, running_store
from workers.doctor.checks import Check, Finding

pytestmark = pytest.mark.timeout(180)


def ill(checks: dict[str, Check]) -> dict[str, Finding]:
    return {name: check.finding for name, check in checks.items() if check.finding is not Finding.OK}


async def test_a_store_that_is_well_passes(store: RunningStore) -> None:
    tenant = new_tenant(store)
    await sent(store, tenant, WELL)
    checks = await looked_at(place(store, tenant), running_job())
    assert ill(checks) == {}
    assert {"reach", "clock", "tenant", "labels.job_id", "labels.node", "newest line", "limits"} <= checks.keys()
    assert "1 of 1 running jobs" in checks["labels.job_id"].says


async def test_without_a_running_job_what_can_be_told_is_told(store: RunningStore) -> None:
    tenant = new_tenant(store)
    await sent(store, tenant, WELL, ahead_s=-600)
    checks = await looked_at(place(store, tenant))
    assert ill(checks) == {"newest line": Finding.WARNING}
    assert "no job runs" in checks["labels.job_id"].says
    assert "canary" in checks["newest line"].remedy


@dataclass(frozen=True)
class Planted:
    """One thing that is wrong with a store that answers: what it holds, what the settings say, what should be found."""

    check: str
    finding: str
    says: str
    remedy: str
    labels: dict[str, str]
    settings: Callable[[RunningStore], dict[str, Any]] = lambda _: {}
    ahead_s: float = 0.0


def selecting(store: RunningStore) -> dict[str, Any]:
    return {"selector": '{app="other"}'}


def listening_to_syslog(store: RunningStore) -> dict[str, Any]:
    return {"canary": '{job="syslog"}'}


MISTAKES = {
    "the job's id has another name": Planted(
        "labels.job_id", "failed", "JOBID does", "set labels.job_id: JOBID", without("slurm_job_id", JOBID="4711")
    ),
    "the job's id has a name of the site's own": Planted(
        "labels.job_id", "failed", "batch does", "set labels.job_id: batch", without("slurm_job_id", batch="4711")
    ),
    "the job's id is not alone": Planted(
        "labels.job_id", "failed", "'slurm-4711.0'", "as squeue prints it", WELL | {"slurm_job_id": "slurm-4711.0"}
    ),
    "nothing tells the job": Planted(
        "labels.job_id", "failed", "cluster", "have collectors attach the job's id", without("slurm_job_id")
    ),
    "only other jobs' lines are there": Planted(
        "labels.job_id", "warning", "of the 1 jobs that run", "--probe", WELL | {"slurm_job_id": "99"}
    ),
    "the cluster has another name": Planted(
        "labels.cluster", "failed", "'beta'", "or name the cluster so", WELL | {"cluster": "beta"}
    ),
    "the cluster's label has another name": Planted(
        "labels.cluster", "failed", "''", "set labels.cluster: site", without("cluster", site="alpha")
    ),
    "the selector leaves the job out": Planted(
        "selector", "failed", "leaves out lines", "correct `selector`", WELL, selecting
    ),
    "the canary selects nothing": Planted(
        "newest line", "failed", "selects no line", "correct `canary`", WELL, listening_to_syslog
    ),
    "the node has another name": Planted(
        "labels.node", "warning", "carry instance", "set labels.node: instance", without("host", instance="node01")
    ),
    "the rank has another name": Planted(
        "labels.rank", "warning", "carry SLURM_PROCID", "labels.rank: SLURM_PROCID", without("rank", SLURM_PROCID="0")
    ),
    "nothing new arrives": Planted("newest line", "failed", "past stale_after_s", "collectors run", WELL, ahead_s=-600),
    "a node's clock is ahead": Planted("newest line", "failed", "s ahead of", "chrony", WELL, ahead_s=300),
}


@pytest.mark.parametrize("planted", MISTAKES.values(), ids=MISTAKES.keys())
async def test_what_is_wrong_in_a_store_is_found_and_how_to_mend_it_is_said(
    store: RunningStore, planted: Planted
) -> None:
    tenant = new_tenant(store)
    await sent(store, tenant, planted.labels, ahead_s=planted.ahead_s)

    checks = await looked_at(place(store, tenant, **planted.settings(store)), running_job())

    found = checks[planted.check]
    assert found.finding == planted.finding, checks
    assert planted.says in found.says
    assert planted.remedy in found.remedy
    # What a store is asked for by wrong labels is not there, so that it seems to be silent too.
    assert ill(checks).keys() - {planted.check} <= {"newest line"}


async def test_what_labels_hold_does_nothing_to_a_terminal_or_a_query(store: RunningStore) -> None:
    tenant = new_tenant(store)
    await sent(store, tenant, without("slurm_job_id", app='\x1b[31m"} |= `4711`'))
    checks = await looked_at(place(store, tenant), running_job())
    assert checks["labels.job_id"].finding is Finding.FAILED
    assert all(check.says.isprintable() and check.remedy.isprintable() for check in checks.values())


async def test_lines_under_another_tenant_are_found(store: RunningStore) -> None:
    mine, theirs = new_tenant(store), "fake" if store.kind == "loki" else new_tenant(store)
    await sent(store, theirs, WELL)
    checks = await looked_at(place(store, mine), running_job())
    assert ill(checks) == {"tenant": Finding.FAILED}
    assert checks["tenant"].remedy.startswith("set tenant: ")


async def test_lines_that_are_all_cut_at_the_same_length_are_found(store: RunningStore) -> None:
    tenant = new_tenant(store)
    for number in range(3):
        await sent(store, tenant, WELL, f"{number} " + "x" * 4_094)
    checks = await looked_at(place(store, tenant), running_job())
    assert ill(checks) == {"line length": Finding.WARNING}
    assert "exactly 4096 characters" in checks["line length"].says


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("said", "check", "remedy"),
    [
        (answer(401, b"invalid token"), "access", "check `access`"),
        (answer(403), "access", "`tenant`"),
        (answer(401, b"no org id"), "tenant", "set `tenant`"),
        (answer(404), "reach", "check `url`"),
        (answer(429, b"", "Retry-After: 7"), "limits", "raise the store's limits"),
        (answer(200, HTML, "Content-Type: text/html"), "reach", "check `url`"),
        (answer(500, b"rpc error"), "reach", "own log"),
    ],
    ids=["token", "rights", "no tenant", "path", "too many questions", "login page", "its own trouble"],
)
async def test_a_refusal_is_named_by_its_link(kind: str, said: bytes, check: str, remedy: str) -> None:
    async with answering(kind, said) as store:
        checks = await looked_at(place(store, ""), running_job())
    assert ill(checks) == {check: Finding.FAILED}
    assert remedy in checks[check].remedy


async def test_a_store_that_is_not_there_is_named() -> None:
    checks = await looked_at(place(RunningStore("loki", f"http://127.0.0.1:{free_port()}"), ""), running_job())
    assert ill(checks) == {"reach": Finding.FAILED}
    assert "check `url`" in checks["reach"].remedy


async def test_a_certificate_that_nobody_vouches_for_is_named(tmp_path: Path) -> None:
    async with serving(tls_of(Authority(tmp_path).sign("store")), "4711", "x") as store:
        checks = await looked_at(place(store, ""), running_job())
    assert ill(checks) == {"TLS": Finding.FAILED}
    assert "`access.ca_file`" in checks["TLS"].remedy


async def test_a_store_whose_clock_is_wrong_is_named() -> None:
    nothing = answer(200, b'{"data": []}', "Date: Sun, 01 Mar 2026 08:00:00 GMT")
    async with answering("loki", nothing) as store:
        checks = await looked_at(place(store, ""), running_job())
    assert checks["clock"].finding is Finding.FAILED
    assert "behind this host's" in checks["clock"].says
    assert "chrony" in checks["clock"].remedy


async def test_a_store_that_gives_few_lines_at_once_is_named() -> None:
    with running_store("loki", "--max-entries", "500") as store:
        await sent(store, "team", WELL)
        checks = await looked_at(place(store, "team"), running_job())
    assert ill(checks) == {"limits": Finding.WARNING}
    assert "max_entries_limit_per_query" in checks["limits"].remedy


async def test_output_that_can_be_read_passes(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1\n")
    checks = await looked_at({"kind": "files"}, running_job(str(tmp_path / "train.log")))
    assert ill(checks) == {}


def missing(directory: Path) -> Path:
    return directory / "train.log"


def a_directory(directory: Path) -> Path:
    return directory


@pytest.mark.parametrize(("path", "remedy"), [(missing, "mount"), (a_directory, "permissions")])
async def test_output_that_can_not_be_read_is_named(path: Callable[[Path], Path], remedy: str, tmp_path: Path) -> None:
    checks = await looked_at({"kind": "files"}, running_job(str(path(tmp_path))))
    assert ill(checks) == {"output": Finding.FAILED}
    assert str(path(tmp_path)) in checks["output"].says
    assert remedy in checks["output"].remedy
