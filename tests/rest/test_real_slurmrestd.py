"""slurmrestd as it is: what it reads, what its version can't do, and what it says when something is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import Hold, JobState, NotOffered, NotPermitted, SchedulerUnavailable
from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from activities.scheduler.rest_client import RestClient, RestServer
from activities.scheduler.rest_token import TokenKeeper, token_variable
from tests.rest.running import Slurmrestd, rest_client
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture
def commands(slurm: SlurmCluster) -> SlurmCli:
    return SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)))


async def until_running(slurm: SlurmCluster, *job_ids: str) -> None:
    await slurm.wait_for(lambda: all(slurm.field(each, "JobState") == "RUNNING" for each in job_ids), 60)


async def test_it_tells_the_same_of_jobs_and_nodes_as_the_commands(
    slurm: SlurmCluster, rest: SlurmRest, commands: SlurmCli
) -> None:
    running = slurm.sbatch("sleep 600", "--nodes=2", "--exclude=node08", "--comment=ünï 码")
    held = slurm.sbatch("sleep 600", "--hold")
    requeued = slurm.sbatch("sleep 600")
    array = slurm.sbatch("sleep 600", "--array=1-5%2")
    failed = slurm.sbatch("exit 3")
    await until_running(slurm, running, requeued, f"{array}_1", f"{array}_2")
    slurm.run("scontrol", "requeuehold", requeued)
    slurm.run("scontrol", "update", "nodename=node07", "state=drain", "reason=smells of HBM")
    await slurm.wait_for(lambda: slurm.field(requeued, "JobState") == "PENDING", 60)
    await slurm.wait_for(lambda: slurm.field(failed, "JobState") == "FAILED", 60)

    by_rest, by_commands = (await rest.jobs()).jobs, (await commands.jobs()).jobs
    nodes_by_rest, nodes_by_commands = await rest.nodes(), await commands.nodes()
    slurm.run("scontrol", "update", "nodename=node07", "state=resume")

    assert by_rest == by_commands
    told = {job.job_id: job for job in by_rest}
    assert {running, held, requeued, array, failed, f"{array}_1", f"{array}_2"} <= set(told)
    assert (told[requeued].hold, told[requeued].restart_count) == (Hold.REQUEUED, 1)
    assert told[held].hold is Hold.USER
    assert told[failed].exit_code == 3
    assert told[running].excluded_nodes == ("node08",)
    assert {node.name: node for node in nodes_by_rest} == {node.name: node for node in nodes_by_commands}
    for job_id in (running, held, requeued, array):
        await rest.cancel(job_id)


async def test_a_verb_that_the_version_has_not_is_refused_with_the_reason_and_does_nothing(
    slurm: SlurmCluster, rest: SlurmRest, rest_api: RestApi
) -> None:
    version = await rest_api.version()
    job_id = slurm.sbatch("sleep 600")
    await until_running(slurm, job_id)
    before = await rest.job(job_id)
    requeues: list[Callable[[str], Awaitable[None]]] = [rest.requeue_hold, rest.requeue]
    updates: list[Callable[[str], Awaitable[None]]] = [
        rest.release,
        rest.start_now,
        rest.allow_requeue,
        lambda job: rest.constrain(job, exclude=("node08",)),
        lambda job: rest.constrain(job, admin_comment="no"),
    ]

    for verb in (*([] if version.requeues else requeues), *([] if version.updates else updates)):
        with pytest.raises(NotPermitted, match=rf"{job_id}.*speaks {version.name}.*cli or ssh"):
            await verb(job_id)

    assert await rest.job(job_id) == before
    await rest.cancel(job_id)


async def test_a_change_of_one_array_task_changes_no_other(
    slurm: SlurmCluster, rest: SlurmRest, rest_api: RestApi
) -> None:
    version = await rest_api.version()
    array = slurm.sbatch("sleep 600", "--array=1-3")
    tasks = [f"{array}_{number}" for number in (1, 2, 3)]
    await until_running(slurm, *tasks)

    for task in tasks:
        # Where no job can be updated, the refusal must not have changed one either.
        refusal = nullcontext() if version.updates else pytest.raises(NotOffered, match=f"speaks {version.name}")
        with refusal:
            await rest.constrain(task, admin_comment=f"of {task}")

    expected = [f"of {task}" if version.updates else "" for task in tasks]
    assert [(await rest.job(task)).admin_comment for task in tasks] == expected
    await rest.cancel(tasks[1])
    await slurm.wait_for(lambda: slurm.field(tasks[1], "JobState") == "CANCELLED", 60)
    assert [(await rest.job(task)).state for task in tasks] == [JobState.RUNNING, JobState.CANCELLED, JobState.RUNNING]
    await rest.cancel(array)


async def test_a_token_that_the_cluster_does_not_take_is_said_so(
    slurm: SlurmCluster, slurmrestd: Slurmrestd, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, claims, _ = slurm.token().split(".")
    monkeypatch.setenv("A_TOKEN", f"{name}.{claims}.AAAA")
    client = RestClient(RestServer(slurmrestd.tcp), TokenKeeper(token_variable("A_TOKEN")))
    with pytest.raises(SchedulerUnavailable, match="token"):
        await SlurmRest(RestApi(client)).jobs()
    await client.close()


async def test_an_account_without_rights_reads_and_may_change_nothing_and_the_controller_goes_on(
    slurm: SlurmCluster, rest: SlurmRest, slurmrestd: Slurmrestd
) -> None:
    job_id = slurm.sbatch("sleep 600")
    await until_running(slurm, job_id)
    before = await rest.job(job_id)
    client = rest_client(slurm, slurmrestd.tcp, user="games")
    nobody = SlurmRest(RestApi(client))
    verbs: list[Callable[[], Awaitable[None]]] = [
        lambda: nobody.constrain(job_id, admin_comment="mine"),
        lambda: nobody.release(job_id),
        lambda: nobody.requeue_hold(job_id),
        lambda: nobody.cancel(job_id),
    ]

    assert await nobody.job(job_id) == before
    for verb in verbs:
        with pytest.raises(NotPermitted, match=job_id):
            await verb()

    assert await rest.job(job_id) == before
    await client.close()
    await rest.cancel(job_id)


async def test_without_a_token_it_says_what_to_set(slurmrestd: Slurmrestd) -> None:
    client = RestClient(RestServer(slurmrestd.tcp), None)
    with pytest.raises(SchedulerUnavailable, match=r"set token_file, token_variable or token_command"):
        await SlurmRest(RestApi(client)).jobs()
    await client.close()


async def test_a_dead_controller_is_no_answer_and_it_answers_again_afterwards(
    slurm: SlurmCluster, slurmrestd: Slurmrestd
) -> None:
    client = rest_client(slurm, slurmrestd.tcp, timeout_s=4)
    impatient = SlurmRest(RestApi(client))
    assert len(await impatient.nodes()) == 8
    slurm.kill_slurmctld()
    try:
        with pytest.raises(SchedulerUnavailable, match=r"slurmrestd at http"):
            await impatient.jobs()
    finally:
        slurm.restart_slurmctld()
    assert len(await impatient.nodes()) == 8
    await client.close()


async def test_it_is_reached_through_a_unix_socket_too(slurm: SlurmCluster, slurmrestd: Slurmrestd) -> None:
    client = rest_client(slurm, slurmrestd.unix)
    assert len(await SlurmRest(RestApi(client)).nodes()) == 8
    await client.close()
