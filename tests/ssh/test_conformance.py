"""The suite over ssh, through a real sshd and relight's forced command, on a real cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import NotPermitted, Scheduler
from activities.scheduler.site import Answer
from activities.scheduler.ssh import SshRunner
from activities.scheduler.submission import Submission
from tests.scheduler.conformance import ClusterUnderTest, SchedulerConformance
from tests.scheduler.test_cli_conformance import RealCluster
from tests.slurm.cluster import SlurmCluster
from tests.ssh.server import SshServer

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


class ClusterOverSsh(RealCluster):
    """The real cluster, read and told from elsewhere."""

    def __init__(self, slurm: SlurmCluster, runner: SshRunner) -> None:
        super().__init__(slurm)
        self._scheduler: Scheduler = SlurmCli(runner)


@pytest.fixture(scope="module")
async def over_ssh(slurm: SlurmCluster, sshd: SshServer) -> AsyncIterator[SshRunner]:
    sshd.serve(slurm)
    runner = SshRunner(sshd.login(identity_files=(sshd.key,)))
    yield runner
    await runner.close()


class TestSlurmOverSsh(SchedulerConformance):
    @pytest.fixture
    def cluster(self, slurm: SlurmCluster, over_ssh: SshRunner) -> ClusterUnderTest:
        return ClusterOverSsh(slurm, over_ssh)


async def test_a_site_tells_the_same_of_itself_over_ssh_as_on_its_own_host(
    slurm: SlurmCluster, over_ssh: SshRunner
) -> None:
    here = SlurmCli(LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf)), account="root")
    there = SlurmCli(over_ssh, account="root")
    hidden = {"clock_skew": None}
    assert (await there.facts()).model_copy(update=hidden) == (await here.facts()).model_copy(update=hidden)
    assert await there.partitions() == await here.partitions()
    assert await there.reservations() == await here.reservations()
    by_key = {"batch_script": None, "submit_for_others": None}
    can = await there.capabilities()
    assert can.model_copy(update=by_key) == (await here.capabilities()).model_copy(update=by_key)
    assert "--scripts" in can.batch_script.reason
    assert "--submit" in can.submit_for_others.reason
    assert {can.batch_script.answer, can.submit_for_others.answer} == {Answer.NO}


async def test_a_batch_script_is_read_and_submitted_over_ssh_only_where_the_key_may(
    slurm: SlurmCluster, sshd: SshServer, over_ssh: SshRunner
) -> None:
    script = "#!/bin/bash\necho 'ü $(id)'\nexec sleep 600\n"
    job_id = slurm.sbatch(script)
    again = Submission(script=script, name="a b", comment="it's $(me)", working_directory=str(slurm.directory / "work"))
    refused = SlurmCli(over_ssh)
    for call in (refused.batch_script(job_id), refused.submit(again)):
        with pytest.raises(NotPermitted, match="forced command"):
            await call

    sshd.serve(slurm, "--submit")
    runner = SshRunner(sshd.login(identity_files=(sshd.key,)))
    try:
        scheduler = SlurmCli(runner, account="root")
        can = await scheduler.capabilities()
        assert {can.batch_script.answer, can.submit_for_others.answer} == {Answer.YES}
        assert await scheduler.batch_script(job_id) == script
        submitted = await scheduler.job(await scheduler.submit(again))
        assert (submitted.name, submitted.comment) == ("a b", "it's $(me)")
        for each in (job_id, submitted.job_id):
            await scheduler.cancel(each)
    finally:
        await runner.close()
