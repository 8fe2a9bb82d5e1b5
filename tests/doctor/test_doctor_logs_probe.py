"""A marked line, sent to real stores as a collector with one thing wrong would, and what becomes of it is named."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.logs_site import JOB_ID, WELL, cluster_of, new_tenant, place, running_job, sent, without
from tests.stores.servers import RunningStore
from workers.doctor.checks import Check, Finding
from workers.doctor.logs import await_line
from workers.doctor.logs_probe import Mark, marked_line

pytestmark = pytest.mark.timeout(180)


def new_token() -> str:
    return f"probe_{secrets.token_hex(8)}"


async def found(logs: dict[str, Any], token: str, wait_s: float = 0, *, stdout: str = "") -> dict[str, Check]:
    """What becomes of the line of job 4711, by the link's name."""
    mark = Mark(token, wait_s, running_job(stdout))
    return {check.name.partition(": probe: ")[2]: check for check in await await_line(cluster_of(logs), mark)}


def failures(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if check.finding is Finding.FAILED]


async def test_a_line_that_arrives_while_it_is_waited_for_passes_every_link(store: RunningStore) -> None:
    token, tenant = new_token(), new_tenant(store)
    await sent(store, tenant, WELL)
    waiting = asyncio.create_task(found(place(store, tenant, late_s=60), token, 60))
    await asyncio.sleep(1)
    await sent(store, tenant, WELL, marked_line(token, str(int(time.time()))))
    checks = await waiting
    assert {name: check.finding for name, check in checks.items()} == dict.fromkeys(
        ("labels", "length", "time", "delay"), Finding.OK
    )
    assert f"slurm_job_id={JOB_ID}" in checks["labels"].says


@dataclass(frozen=True)
class Lost:
    """What a collector made of the line, and what should be said of it."""

    link: str
    says: str
    remedy: str
    labels: dict[str, str]
    printed_s_ago: int = 0
    ahead_s: float = 0.0
    kept_chars: int | None = None
    selector: str = ""


LOST = {
    "under another label": Lost(
        "labels.job_id", "under JOBID", "set labels.job_id: JOBID", without("slurm_job_id", JOBID=JOB_ID)
    ),
    "under more than the id": Lost(
        "labels.job_id", "'job-4711'", "as squeue prints it", WELL | {"slurm_job_id": "job-4711"}
    ),
    "without an id": Lost("labels.job_id", "without the job's id", "attach slurm_job_id", without("slurm_job_id")),
    "for another cluster": Lost("labels.cluster", "'beta'", "name the cluster so", WELL | {"cluster": "beta"}),
    "left out by the selector": Lost(
        "selector", "leaves the line out", "correct `selector`", WELL, selector='{app="other"}'
    ),
    "truncated": Lost("length", "truncated after 4096 characters", "raise the limit", WELL, kept_chars=4_096),
    "stamped late": Lost("time", "after it was printed", "time of printing", WELL, printed_s_ago=90),
    "stamped in another zone": Lost("time", "before it was printed", "in UTC", WELL, ahead_s=-3_600),
    "printed on a node whose clock is ahead": Lost(
        "time", "the node's clock is", "chrony", WELL, printed_s_ago=-300, ahead_s=300
    ),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
async def test_the_link_that_is_broken_is_named(store: RunningStore, lost: Lost) -> None:
    token, tenant = new_token(), new_tenant(store)
    line = marked_line(token, str(int(time.time()) - lost.printed_s_ago))[: lost.kept_chars]
    await sent(store, tenant, lost.labels, line, ahead_s=lost.ahead_s)

    checks = await found(place(store, tenant, selector=lost.selector), token)

    assert failures(checks) == [lost.link]
    assert lost.says in checks[lost.link].says
    assert lost.remedy in checks[lost.link].remedy


async def test_a_line_from_before_its_job_tells_that_the_clock_of_the_node_is_behind(store: RunningStore) -> None:
    token, tenant = new_token(), new_tenant(store)
    await sent(store, tenant, WELL, marked_line(token, str(int(time.time()) - 90)), ahead_s=-90)
    mark = Mark(token, 0, running_job(), not_before_s=time.time() - 2)
    checks = {check.name: check for check in await await_line(cluster_of(place(store, tenant)), mark)}
    found = checks[f"{store.kind}: probe: time"]
    assert found.finding is Finding.FAILED
    assert "s behind" in found.says


async def test_a_line_that_is_split_is_told_from_one_that_is_truncated(store: RunningStore) -> None:
    token, tenant = new_token(), new_tenant(store)
    line = marked_line(token, str(int(time.time())))
    await sent(store, tenant, WELL, line[:4_096])
    await sent(store, tenant, WELL, line[4_096:])
    checks = await found(place(store, tenant), token)
    assert failures(checks) == ["length"]
    assert "split after 4096 characters" in checks["length"].says


async def test_a_line_that_comes_later_than_is_waited_for_by_the_watch_is_named(store: RunningStore) -> None:
    token, tenant = new_token(), new_tenant(store)
    await sent(store, tenant, WELL)
    printed_s = int(time.time())
    waiting = asyncio.create_task(found(place(store, tenant, late_s=1), token, 60))
    await asyncio.sleep(4)
    await sent(store, tenant, WELL, marked_line(token, str(printed_s)), ahead_s=printed_s - time.time())
    checks = await waiting
    assert failures(checks) == ["delay"]
    assert checks["delay"].remedy.startswith("set late_s: ")


async def test_a_line_for_another_tenant_is_found_there(store: RunningStore) -> None:
    token, mine, theirs = new_token(), new_tenant(store), "fake" if store.kind == "loki" else new_tenant(store)
    await sent(store, theirs, WELL, marked_line(token, str(int(time.time()))))
    checks = await found(place(store, mine), token)
    assert failures(checks) == ["tenant"]
    assert checks["tenant"].remedy == f'set tenant: "{theirs}"'


async def test_a_line_that_is_nowhere_was_not_collected(store: RunningStore) -> None:
    checks = await found(place(store, new_tenant(store)), new_token(), stdout="/shared/train.log")
    assert failures(checks) == ["collected"]
    assert "reads /shared/train.log on node01" in checks["collected"].remedy


async def test_a_line_in_a_file_is_found_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    token, path = new_token(), tmp_path / "slurm-4711.out"
    path.write_text(marked_line(token, str(int(time.time()))) + "\n")
    assert failures(await found({"kind": "files"}, token, stdout=str(path))) == []
    checks = await found({"kind": "files"}, token, stdout="/elsewhere/slurm-4711.out")
    assert failures(checks) == ["output"]
    assert "mount" in checks["output"].remedy
