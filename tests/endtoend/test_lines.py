"""Jobs in the place of others on a simulated cluster: a line of them has one budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.scheduler.lineage import read_lineage
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(240)]


@pytest.fixture
def resubmitting(own_simulator: RunningSimulator, servers: Servers, tmp_path: Path) -> Iterator[Service]:
    directory = tmp_path / "lines"
    directory.mkdir()
    service = servers.service(directory)
    simulated = {"kind": "simulated", "socket": str(own_simulator.socket)}
    service.configure(simulated, poll_interval_s=0.5, policy={"resubmit": True})
    service.start()
    yield service
    service.stop()


async def test_a_bug_that_comes_back_in_the_next_job_of_a_line_ends_the_line(
    own_simulator: RunningSimulator, resubmitting: Service
) -> None:
    await resubmitting.serving()
    bug = ("--fault", "keyerror", "--fault-iteration", "3")
    first = await submit(own_simulator, "bug", *bug, requeueable=False)
    second = (await resubmitting.closed(first)).resubmitted_as
    end = await resubmitting.closed(second)
    jobs = {job.job_id: job for job in (await own_simulator.scheduler.jobs()).jobs}

    assert set(jobs) == {first, second}, "no third one"
    assert end.closed.startswith("stopped by policy: the same failure came back"), resubmitting.story(end)
    lineage = read_lineage(jobs[second].comment)
    assert lineage is not None
    assert (lineage.of, lineage.count) == (first, 1)
