"""Accounts and batch scripts through a real slurmrestd with its slurmdbd plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import JobState, JobUnknown, NotOffered, SchedulerUnavailable
from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from activities.scheduler.site import AccountedAttempt, AccountsReader, Answer
from tests.rest.running import rest_client, why_no_slurmrestd
from tests.slurm.accounting import AccountedCluster, why_no_accounts
from tests.slurm.cluster import why_unavailable
from tests.slurm.release import SlurmRelease

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def keeping(request: pytest.FixtureRequest) -> Iterator[AccountedCluster]:
    """A cluster that keeps accounts, of the release of this test run."""
    release = SlurmRelease(request.config.getoption("--slurm"))
    if reason := why_unavailable(release) or why_no_accounts():
        pytest.skip(f"tests with accounting skipped: {reason}")
    cluster = AccountedCluster(release)
    cluster.start()
    try:
        if reason := why_no_slurmrestd(cluster):
            pytest.skip(f"tests with slurmrestd skipped: {reason}")
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
async def api(keeping: AccountedCluster) -> AsyncIterator[RestApi]:
    client = rest_client(keeping, f"http://127.0.0.1:{keeping.start_slurmrestd()}")
    yield RestApi(client)
    await client.close()


@pytest.fixture
def commands(keeping: AccountedCluster) -> SlurmCli:
    return SlurmCli(LocalRunner(bin_dir=str(keeping.commands), slurm_conf=str(keeping.conf)), account="root")


async def until_accounted(commands: SlurmCli, job_id: str, *, attempts: int = 1) -> None:
    """Wait until accounting tells of so many attempts, and that the last one has ended."""
    async with asyncio.timeout(60):
        told = await commands.accounting(job_id)
        while len(told) != attempts or not told[-1].state.ended:
            await asyncio.sleep(0.25)
            told = await commands.accounting(job_id)


async def test_all_attempts_of_a_job_are_told_as_the_commands_tell_them(
    keeping: AccountedCluster, api: RestApi, commands: SlurmCli
) -> None:
    rest = SlurmRest(api)
    job_id = keeping.sbatch("exit 3", "--nodes=2", '--comment={"a": "ü"}', "--job-name=twice")
    await keeping.wait_for(lambda: keeping.field(job_id, "JobState") == "FAILED", 60)
    keeping.run("scontrol", "requeue", job_id)
    keeping.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")
    await keeping.wait_for(lambda: keeping.field(job_id, "JobState") == "FAILED", 60)
    await until_accounted(commands, job_id, attempts=2)
    by_rest, by_commands = await rest.accounting(job_id), await commands.accounting(job_id)

    # The words for a state, and for why, are each one's own.
    own = {"state_words", "reason"} | (set() if (await api.version()).updates else {"exit_code"})
    assert _differences(by_rest[-1], by_commands[-1]) <= own
    assert [_when_and_where(each) for each in by_rest] == [_when_and_where(each) for each in by_commands]
    assert by_commands[-1].exit_code == 3
    assert isinstance(rest, AccountsReader)
    assert await rest.accounting("4711") == ()


def _differences(one: AccountedAttempt, other: AccountedAttempt) -> set[str]:
    return {name for name in type(one).model_fields if getattr(one, name) != getattr(other, name)}


def _when_and_where(attempt: AccountedAttempt) -> tuple[object, ...]:
    """What both tell of an attempt that was requeued, which has no end of its own."""
    return attempt.job_id, attempt.submitted_at, attempt.started_at, attempt.ended_at, attempt.nodes, attempt.flags


async def test_a_task_of_an_array_is_told_alone(keeping: AccountedCluster, api: RestApi, commands: SlurmCli) -> None:
    array = keeping.sbatch("exit 0", "--array=1-2")
    await until_accounted(commands, f"{array}_1")
    (attempt,) = await SlurmRest(api).accounting(f"{array}_1")

    assert (attempt.job_id, attempt.state) == (f"{array}_1", JobState.COMPLETED)
    assert attempt.job_number == (await commands.job(f"{array}_1")).job_number != array


async def test_a_batch_script_comes_from_accounting_where_the_version_gives_it_out(
    keeping: AccountedCluster, api: RestApi, commands: SlurmCli
) -> None:
    rest, version = SlurmRest(api), await api.version()
    script = "#!/bin/bash\necho 'ü $(id)'\nexit 0\n"
    job_id = keeping.sbatch(script)
    await until_accounted(commands, job_id)
    can = await rest.capabilities()

    assert can.accounting.answer is Answer.YES
    assert can.batch_script.answer is (Answer.YES if version.scripts else Answer.NO)
    if version.scripts:
        assert await rest.batch_script(job_id) == script
        with pytest.raises(JobUnknown, match="job_script keeps it"):
            await rest.batch_script("4711")
    else:
        with pytest.raises(NotOffered, match=f"{version.name} gives no batch script out"):
            await rest.batch_script(job_id)


async def test_a_silent_slurmdbd_is_no_answer_and_what_can_be_done_is_unknown(
    keeping: AccountedCluster, api: RestApi
) -> None:
    keeping.kill_slurmdbd()
    try:
        with pytest.raises(SchedulerUnavailable):
            await SlurmRest(api).accounting("1")
        assert (await SlurmRest(api).capabilities()).accounting.answer is Answer.UNKNOWN
    finally:
        keeping.restart_slurmdbd()
