"""A real job of another user comes again as it was: from the controller, and from accounting once that forgot it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import JobRecord
from activities.scheduler.submission import Irrecoverable, Submission
from tests.slurm.accounting import AccountedCluster, why_no_accounts
from tests.slurm.cluster import why_unavailable
from tests.slurm.release import SlurmRelease

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

COMMENT = '{"relight": {"mode": "act"}, "site": "a b"}'
SCRIPT = """#!/bin/bash
#SBATCH --nodes=1
echo "$(id -un):$(id -gn) $# [$1] [$2] name=$SLURM_JOB_NAME step=$(srun --overlap sh -c 'echo ok')"
exit 3
"""
OPTIONS = (
    *("--uid=games", "--gid=games", "--no-requeue", "--ntasks=2", "--cpus-per-task=2", "--mem=100"),
    *(
        "--time=1:30:00",
        "-p",
        "other",
        "--exclude=node01",
        "--job-name=a b",
        "--output=anew-%j.log",
        f"--comment={COMMENT}",
    ),
)


@pytest.fixture(scope="module")
def forgetful(request: pytest.FixtureRequest) -> Iterator[AccountedCluster]:
    """A cluster whose controller forgets ended jobs within about a minute."""
    release = SlurmRelease(request.config.getoption("--slurm"))
    if reason := why_unavailable(release) or why_no_accounts():
        pytest.skip(f"tests with accounting skipped: {reason}")
    cluster = AccountedCluster(release, extra_conf="MinJobAge=15")
    cluster.start()
    try:
        (cluster.directory / "work").chmod(0o777)
        yield cluster
    finally:
        cluster.stop()


def site(cluster: AccountedCluster, account: str = "root") -> SlurmCli:
    runner = LocalRunner(bin_dir=str(cluster.commands), slurm_conf=str(cluster.conf))
    return SlurmCli(runner, account=account)


async def submit(cluster: AccountedCluster, *options: str) -> JobRecord:
    """Submit a job that fails at once and return its record as it ended."""
    script = cluster.directory / "work" / "run.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    job_id = cluster.run("sbatch", "--parsable", *options, str(script), "one", "two").strip()
    await cluster.wait_for(lambda: cluster.field(job_id, "JobState") == "FAILED", 30, "the job fails")
    return await site(cluster).job(job_id)


FIELDS = (
    *("UserId", "GroupId", "Partition", "NumTasks", "CPUs/Task", "MinMemoryNode", "TimeLimit", "QOS"),
    *("ExcNodeList", "Requeue", "WorkDir", "JobName"),
)


async def comes_again(
    cluster: AccountedCluster, old: JobRecord, submission: Submission, fields: dict[str, str]
) -> None:
    new = await site(cluster).submit(submission.model_copy(update={"held": True}))
    record = await site(cluster).job(new)

    assert {name: cluster.field(new, name) for name in FIELDS} == fields
    assert (record.name, record.comment, record.user, record.node_count) == (old.name, COMMENT, "games", 1)
    assert record.stdout == str(cluster.directory / "work" / f"anew-{new}.log")
    cluster.run("scancel", new)


async def test_a_job_comes_again_with_its_owner_options_and_arguments_from_the_controller_and_from_accounting(
    forgetful: AccountedCluster,
) -> None:
    old = await submit(forgetful, *OPTIONS)
    fields = {name: forgetful.field(old.job_id, name) for name in FIELDS}
    await comes_again(forgetful, old, await site(forgetful).submission_of(old), fields)

    def forgotten() -> bool:
        return old.job_id not in forgetful.run("squeue", "--states=all", "--noheader", "--format=%i").split()

    await forgetful.wait_for(forgotten, 120, "the controller forgets the job")
    await comes_again(forgetful, old, await site(forgetful).submission_of(old), fields)


async def test_a_new_job_runs_with_its_arguments_in_its_owners_login_environment(forgetful: AccountedCluster) -> None:
    old = await submit(forgetful, "--output=login-%j.log", "--job-name=login")
    submission = await site(forgetful).submission_of(old)
    new = await site(forgetful).submit(submission)
    output = forgetful.directory / "work" / f"login-{new}.log"
    await forgetful.wait_for(lambda: output.exists() and bool(output.read_text()), 30, "the new job runs")

    assert output.read_text() == "root:root 2 [one] [two] name=login step=ok\n"


async def test_a_job_whose_id_accounting_knows_of_another_one_is_not_submitted(forgetful: AccountedCluster) -> None:
    old = await submit(forgetful, *OPTIONS)
    other = old.model_copy(update={"job_id": str(int(old.job_id) + 1_000)})
    with pytest.raises(Irrecoverable, match="knows job"):
        await site(forgetful).submission_of(other)


async def test_only_root_submits_for_another_user_and_the_refusal_says_so(forgetful: AccountedCluster) -> None:
    old = await submit(forgetful, *OPTIONS)
    with pytest.raises(Irrecoverable, match="only as root, and relight is daemon there"):
        await site(forgetful, account="daemon").submission_of(old)
