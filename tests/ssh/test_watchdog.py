"""The watchdog finishes a resubmission through the forced command, and through nothing that the key may not do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.lineage import KEY
from activities.scheduler.marker import Account, read_marker
from activities.scheduler.protocol import Hold, JobState
from activities.scheduler.rounds import Outcome
from activities.scheduler.ssh import SshRunner
from recovery.model import JobKey
from tests.protocol.parts import an_advice
from tests.slurm.cluster import SlurmCluster
from tests.ssh.server import SshServer
from tests.watchdog.parts import Recorded, a_lineage
from tests.watchdog.test_real_cluster import SHORT, a_watchdog, look_for, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]

FORGOTTEN = "999999"


def comment_of_a_new_job() -> str:
    """In the place of a job that the scheduler has forgotten."""
    now = datetime.now(UTC)
    order = an_advice(job=JobKey(cluster="alpha", job_id=FORGOTTEN, submitted_at=now)).key
    return json.dumps({KEY: a_lineage(order=order, of=FORGOTTEN, since=now).model_dump(mode="json")})


async def test_a_new_job_is_released_over_ssh_unless_the_key_may_only_read(
    slurm: SlurmCluster, sshd: SshServer, runner: Callable[..., SshRunner]
) -> None:
    sshd.serve(slurm, "--read-only")
    new = slurm.sbatch("sleep 600", "--hold", f"--comment={comment_of_a_new_job()}")
    reading = SlurmCli(runner(identity_files=(sshd.key,)))
    seen = await look_for(a_watchdog(reading, Recorded()), SHORT.total_seconds() + 2)
    assert seen[new] == {Outcome.LEFT, Outcome.FAILED}
    held = await reading.job(new)
    assert (held.hold, held.admin_comment) == (Hold.USER, "")

    sshd.serve(slurm)
    acting = SlurmCli(runner(identity_files=(sshd.key,)))
    acted = await look_for(a_watchdog(acting, Recorded()), SHORT.total_seconds() + 2)
    assert Outcome.RELEASED in acted[new]
    record = await until(acting, new, lambda job: job.state is JobState.RUNNING)
    assert isinstance(read_marker(record.admin_comment), Account)
    await acting.cancel(new)
