"""What a real site is and allows, asked with Slurm's own commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import Finished, LocalRunner
from activities.scheduler.protocol import Invalid, JobFlag, JobState, JobUnknown, NotPermitted, SchedulerUnavailable
from activities.scheduler.site import AccountedAttempt, Answer, Known
from activities.scheduler.submission import Submission
from tests.slurm.accounting import AccountedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


class AsNobody:
    """Commands as an account that has no rights."""

    def __init__(self, runner: LocalRunner) -> None:
        self._runner = runner

    async def run(self, *command: str, stdin: str = "") -> Finished:
        return await self._runner.run(*NOBODY, "--", *command, stdin=stdin)


@pytest.fixture
def site(accounted: AccountedCluster) -> SlurmCli:
    return SlurmCli(LocalRunner(slurm_conf=str(accounted.conf)), account="root")


@pytest.fixture
def nobody(accounted: AccountedCluster) -> SlurmCli:
    return SlurmCli(AsNobody(LocalRunner(slurm_conf=str(accounted.conf))), account="nobody")


@pytest.fixture
async def without_slurmdbd(accounted: AccountedCluster) -> AsyncIterator[None]:
    accounted.kill_slurmdbd()
    yield
    accounted.restart_slurmdbd()


async def accounts(site: SlurmCli, job_id: str, states: list[JobState]) -> tuple[AccountedAttempt, ...]:
    """Wait until accounting shows attempts in `states`: slurmctld tells it of them a little later."""
    told: tuple[AccountedAttempt, ...] = ()
    for _ in range(240):
        told = await site.accounting(job_id)
        if [attempt.state for attempt in told] == states:
            return told
        await asyncio.sleep(0.25)
    raise AssertionError(f"accounting shows {told}")


async def permitted(act: Callable[[], Awaitable[None]]) -> None:
    """Do `act` once slurmctld has heard of a new AdminLevel from slurmdbd."""
    for _ in range(40):
        try:
            return await act()
        except NotPermitted:
            await asyncio.sleep(0.25)
    raise AssertionError("never permitted")


async def test_the_facts_of_a_site_are_what_its_configuration_says(site: SlurmCli) -> None:
    facts = await site.facts()

    assert facts.cluster_name == Known(value="relight-test")
    assert facts.min_job_age == Known(value=timedelta(seconds=300))
    assert facts.requeue_delay == Known(value=timedelta(seconds=121))
    assert facts.accounting_store_flags == Known(value=frozenset({"job_comment", "job_script"}))
    assert facts.has_accounting is Answer.YES
    assert isinstance(facts.controllers, Known)
    assert [controller.answers for controller in facts.controllers.value] == [Answer.YES]
    assert isinstance(facts.clock_skew, Known)
    assert abs(facts.clock_skew.value) < timedelta(seconds=30)


async def test_partitions_and_reservations_are_read(accounted: AccountedCluster, site: SlurmCli) -> None:
    assert await site.reservations() == ()
    begins = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    words = ("starttime=now+3600", "duration=60", "nodes=node[01-02]", "flags=maint,ignore_jobs", "users=root")
    accounted.run("scontrol", "create", "reservation", "reservationname=maint", *words)

    (reservation,) = await site.reservations()
    accounted.run("scontrol", "delete", "reservationname=maint")

    assert reservation.nodes == ("node01", "node02")
    assert "MAINT" in reservation.flags
    assert abs(reservation.starts_at - begins) < timedelta(minutes=1)
    assert [partition.name for partition in await site.partitions()] == ["main", "other"]


async def test_accounting_tells_of_every_attempt_of_a_job(accounted: AccountedCluster, site: SlurmCli) -> None:
    comment = json.dumps({"relight": {"mode": "act"}, "note": "a|b\nc \\ \x1e"}) + "\nand more"
    job_id = accounted.sbatch("sleep 2; exit 3", f"--comment={comment}", "--job-name=a job")
    (alone,) = await accounts(site, job_id, [JobState.FAILED])
    accounted.run("scontrol", "requeuehold", job_id)
    accounted.run("scontrol", "release", job_id)
    accounted.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")

    # An attempt that failed and was requeued counts as requeued from then on; its exit code stays.
    first, second = await accounts(site, job_id, [JobState.UNKNOWN, JobState.FAILED])

    assert (alone.exit_code, alone.nodes, alone.name, alone.comment) == (3, ("node01",), "a job", comment)
    assert first.flags == {JobFlag.REQUEUED}
    assert (first.submitted_at, first.exit_code) == (alone.submitted_at, 3)
    assert second.submitted_at > first.submitted_at
    assert first.ended_at is not None


async def test_what_was_requeued_while_it_ran_is_no_failure(accounted: AccountedCluster, site: SlurmCli) -> None:
    job_id = accounted.sbatch("exec sleep 600")
    await accounted.wait_for(lambda: accounted.field(job_id, "JobState") == "RUNNING", 60)
    accounted.run("scontrol", "requeuehold", job_id)

    first, _ = await accounts(site, job_id, [JobState.UNKNOWN, JobState.PENDING])
    accounted.run("scancel", job_id)

    assert first.flags == {JobFlag.REQUEUED}


async def test_tasks_of_an_array_are_told_apart(accounted: AccountedCluster, site: SlurmCli) -> None:
    array = accounted.sbatch("exit $SLURM_ARRAY_TASK_ID", "--array=0-1")

    (done,) = await accounts(site, f"{array}_0", [JobState.COMPLETED])
    (failed,) = await accounts(site, f"{array}_1", [JobState.FAILED])

    assert (done.job_id, failed.exit_code) == (f"{array}_0", 1)


async def test_a_job_that_accounting_never_saw_has_no_attempts(site: SlurmCli) -> None:
    assert await site.accounting("999999") == ()


async def test_a_batch_script_is_read_and_submitted_again(accounted: AccountedCluster, site: SlurmCli) -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=2\n# ü $HOME `id`\nexit 0\n"
    job_id = accounted.sbatch(script)

    assert await site.batch_script(job_id) == script
    again = await site.submit(
        Submission(script=script, name="again", exclude=("node01", "node02"), held=True, comment="a 'b' \"c\"")
    )

    record = await site.job(again)
    assert (record.name, record.excluded_nodes, record.node_count) == ("again", ("node01", "node02"), 2)
    assert record.comment == "a 'b' \"c\""
    assert record.state is JobState.PENDING
    assert await site.batch_script(again) == script
    await site.cancel(again)


async def test_a_batch_script_that_nobody_has_is_an_unknown_job(site: SlurmCli) -> None:
    with pytest.raises(JobUnknown):
        await site.batch_script("999999")


@pytest.mark.parametrize(
    "submission",
    [
        Submission(script="no interpreter"),
        Submission(script="#!/bin/sh\n", partition="nowhere"),
        Submission(script="#!/bin/sh\n", exclude=("node99",)),
        Submission(script="#!/bin/sh\n", name="a\0b"),
    ],
)
async def test_what_a_cluster_can_not_take_is_invalid(site: SlurmCli, submission: Submission) -> None:
    with pytest.raises(Invalid):
        await site.submit(submission)


async def test_slurms_own_account_can_do_everything(site: SlurmCli) -> None:
    can = await site.capabilities()

    assert can.in_the_way_of_acts() == {}
    assert (can.accounting.answer, can.batch_script.answer) == (Answer.YES, Answer.YES)


async def test_who_may_submit_for_others_is_found_out_without_submitting_anything(
    site: SlurmCli, nobody: SlurmCli
) -> None:
    before = {job.job_id for job in (await site.jobs()).jobs}

    assert (await site.capabilities()).submit_for_others.answer is Answer.YES
    can = (await nobody.capabilities()).submit_for_others

    assert can.answer is Answer.NO
    assert "only as root, and relight is nobody there" in can.reason
    assert {job.job_id for job in (await site.jobs()).jobs} == before


async def test_an_account_without_rights_may_not_act_and_is_told_how_it_may(nobody: SlurmCli) -> None:
    can = await nobody.capabilities()

    assert set(can.in_the_way_of_acts()) == {"requeue", "hold", "exclude", "admin_comment"}
    assert can.requeue.answer is Answer.NO
    assert "sacctmgr add user nobody" in can.requeue.reason


async def test_what_an_account_may_do_goes_by_its_adminlevel(accounted: AccountedCluster, nobody: SlurmCli) -> None:
    accounted.run("sacctmgr", "-i", "add", "account", "people")
    accounted.run("sacctmgr", "-i", "add", "user", "nobody", "account=people")
    job_id = accounted.sbatch("exec sleep 600", "--hold")
    plain = await nobody.capabilities()
    accounted.run("sacctmgr", "-i", "modify", "user", "where", "name=nobody", "set", "adminlevel=operator")
    operator = await nobody.capabilities()
    await permitted(lambda: nobody.constrain(job_id, exclude=("node01",)))
    with pytest.raises(NotPermitted):
        await nobody.constrain(job_id, admin_comment="mark")
    accounted.run("sacctmgr", "-i", "modify", "user", "where", "name=nobody", "set", "adminlevel=admin")
    administrator = await nobody.capabilities()
    await permitted(lambda: nobody.constrain(job_id, admin_comment="mark"))
    accounted.run("scancel", job_id)
    accounted.run("sacctmgr", "-i", "delete", "user", "nobody")

    assert "set adminlevel=admin" in plain.requeue.reason
    assert set(operator.in_the_way_of_acts()) == {"admin_comment"}
    assert administrator.in_the_way_of_acts() == {}


async def test_without_slurmdbd_nothing_is_concluded(site: SlurmCli, nobody: SlurmCli, without_slurmdbd: None) -> None:
    with pytest.raises(SchedulerUnavailable):
        await site.accounting("1")
    assert (await site.capabilities()).accounting.answer is Answer.UNKNOWN
    assert (await site.capabilities()).requeue.answer is Answer.YES
    assert (await nobody.capabilities()).requeue.answer is Answer.UNKNOWN


async def test_a_controller_that_is_away_makes_all_unknown_and_nothing_refused(accounted: AccountedCluster) -> None:
    nowhere = accounted.directory / "nowhere.conf"
    nowhere.write_text(accounted.conf.read_text().replace("SlurmctldPort=", "MessageTimeout=2\nSlurmctldPort=1\n#"))
    away = SlurmCli(LocalRunner(slurm_conf=str(nowhere)), account="root")

    can = await away.capabilities()

    assert {capability.answer for capability in can.in_the_way_of_acts().values()} == {Answer.UNKNOWN}
    with pytest.raises(SchedulerUnavailable):
        await away.facts()
