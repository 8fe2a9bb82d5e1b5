"""What slurmrestd tells of its site, and what can be done through it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.rest_api import RestApi
from activities.scheduler.rest_client import RestClient, RestServer
from activities.scheduler.rest_site import RestSite
from activities.scheduler.site import Answer, Capabilities, Known, Unknown
from tests.rest.server import PATHS_OF_26_05, Asked, said, scripted, silence
from tests.rest.server import Answer as Reply
from tests.slurm.cluster import SlurmCluster

CONF = {
    "ClusterName": "alpha",
    "MinJobAge": 300,
    "AuthInfo": "cred_expire=30",
    "KillWait": 30,
    "PreemptMode": ["DISABLED"],
    "JobRequeue": True,
    "MaxBatchRequeue": 5,
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStoreFlags": ["JOB_COMMENT"],
    "SchedulerParameters": ["defer"],
    "SlurmUser": "slurm",
    "PrivateData": [],
}


def site_that_says(conf: dict[str, Any], level: list[str]) -> Reply:
    """Answer as slurmrestd of 26.05 with slurmdbd does."""
    contents = {
        "conf": {"slurm_conf": conf, "slurm_conf_meta": {"LastUpdate": 1_795_974_955}, "errors": []},
        "clusters": {"clusters": [], "errors": []},
        "user": {"users": [{"name": "relight", "administrator_level": level}], "errors": []},
    }

    async def answer(asked: Asked, writer: Any) -> None:
        await said(contents[asked.path.split("/")[3]])(asked, writer)

    return answer


async def capabilities_through(
    reply: Reply, *, user: str = "relight", paths: tuple[str, ...] = PATHS_OF_26_05, timeout_s: float = 20
) -> Capabilities:
    async with scripted(reply) as server:
        server.paths = paths
        client = RestClient(RestServer(f"http://127.0.0.1:{server.port}", user=user), None, timeout_s=timeout_s)
        found = await RestSite(RestApi(client)).capabilities()
        await client.close()
        return found


WITH_SLURMDBD = (*PATHS_OF_26_05, "/slurm/v0.0.45/conf", "/slurmdb/v0.0.45/user/{name}")


async def test_an_administrator_may_do_all_that_acting_needs() -> None:
    found = await capabilities_through(site_that_says(CONF, ["Administrator"]), paths=WITH_SLURMDBD)
    assert not found.in_the_way_of_acts()
    assert found.batch_script.answer is Answer.NO, "this version does not let it be asked for"
    assert found.accounting.answer is Answer.YES


async def test_without_its_slurmdbd_plugin_accounts_are_not_read_and_scripts_unknown() -> None:
    found = await capabilities_through(site_that_says(CONF, []), user="root")
    assert (found.accounting.answer, found.batch_script.answer) == (Answer.NO, Answer.UNKNOWN)
    for capability in (found.accounting, found.batch_script):
        assert "without its slurmdbd plugin" in capability.reason


async def test_an_operator_may_act_but_not_mark_what_it_holds() -> None:
    found = await capabilities_through(site_that_says(CONF, ["Operator"]), paths=WITH_SLURMDBD)
    assert set(found.in_the_way_of_acts()) == {"admin_comment"}


@pytest.mark.parametrize(
    ("user", "conf", "level", "answer", "words"),
    [
        ("relight", CONF, ["None"], Answer.NO, "relight has no AdminLevel: sacctmgr modify user"),
        ("relight", CONF, [], Answer.NO, "slurmdbd does not know relight"),
        ("relight", CONF | {"AccountingStorageType": ""}, [], Answer.NO, "without slurmdbd only root and slurm"),
        ("", CONF, [], Answer.UNKNOWN, "not known which account"),
        ("slurm", CONF, [], Answer.YES, ""),
        ("root", CONF, [], Answer.YES, ""),
    ],
)
async def test_who_may_act_depends_on_the_account(
    user: str, conf: dict[str, Any], level: list[str], answer: Answer, words: str
) -> None:
    found = await capabilities_through(site_that_says(conf, level), user=user, paths=WITH_SLURMDBD)
    for capability in (found.requeue, found.hold, found.exclude, found.admin_comment):
        assert capability.answer is answer
        assert words in capability.reason


async def test_without_slurmdbds_part_of_the_interface_it_is_unknown_who_may_act() -> None:
    paths = (*PATHS_OF_26_05, "/slurm/v0.0.45/conf")
    found = await capabilities_through(site_that_says(CONF, []), paths=paths)
    assert found.requeue.answer is Answer.UNKNOWN
    assert "slurmdbd plugin" in found.requeue.reason


async def test_without_an_answer_everything_is_unknown() -> None:
    found = await capabilities_through(silence, paths=WITH_SLURMDBD, timeout_s=0.3)
    for capability in Capabilities.model_fields:
        assert getattr(found, capability).answer is Answer.UNKNOWN
        assert "did not answer" in getattr(found, capability).reason


@pytest.mark.parametrize("conf", [{}, CONF | {"KillWait": "long"}])
async def test_another_configuration_than_expected_is_no_answer(conf: dict[str, Any]) -> None:
    async with scripted(site_that_says(conf, [])) as server:
        server.paths = WITH_SLURMDBD
        client = RestClient(RestServer(f"http://127.0.0.1:{server.port}"), None)
        with pytest.raises(SchedulerUnavailable, match=r"configuration: slurm_conf\."):
            await RestSite(RestApi(client)).facts()
        await client.close()


@pytest.mark.slurm
async def test_a_real_site_is_told_as_far_as_its_version_goes(slurm: SlurmCluster, rest_api: RestApi) -> None:
    version = await rest_api.version()
    facts = await RestSite(rest_api).facts()

    assert facts.slurm_version == Known(value=slurm.run("sinfo", "--version").split()[-1])
    assert isinstance(facts.controllers, Known)
    (controller,) = facts.controllers.value
    assert (controller.role, controller.answers) == ("primary", Answer.YES)
    if not version.configures:
        assert isinstance(facts.min_job_age, Unknown)
        assert "v0.0.45" in facts.min_job_age.why
        return
    assert facts.cluster_name == Known(value="relight-test")
    assert facts.min_job_age == Known(value=timedelta(seconds=300))
    assert facts.kill_wait == Known(value=timedelta(seconds=2))
    assert facts.requeue_delay == Known(value=timedelta(seconds=121))
    assert facts.preempt_mode == Known(value=frozenset({"OFF"}))
    assert facts.job_requeue == Known(value=True)
    assert facts.slurm_user == Known(value="root")
    assert facts.has_accounting is Answer.NO
    assert isinstance(facts.clock_skew, Known)
    assert abs(facts.clock_skew.value) < timedelta(seconds=30)


@pytest.mark.slurm
async def test_a_real_server_says_what_its_version_can_not_do(slurm: SlurmCluster, rest_api: RestApi) -> None:
    version = await rest_api.version()
    found = await RestSite(rest_api).capabilities()

    for capability, there in (
        (found.requeue, version.requeues),
        (found.hold, version.requeues),
        (found.exclude, version.updates),
        (found.admin_comment, version.updates),
    ):
        assert capability.answer is (Answer.YES if there else Answer.NO)
        assert there or f"slurmrestd's {version.name} can't" in capability.reason
        assert there or "cli or ssh" in capability.reason
