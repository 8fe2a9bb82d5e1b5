"""Who asks slurmctld most, by its own count (sdiag): a person's loop of squeue does, and relight does not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import Finished, LocalRunner
from activities.scheduler.pace import BURST_S, Pace, PacedRunner
from activities.scheduler.protocol import SchedulerError
from activities.snapshot import ClusterSnapshots
from tests.slurm.cluster import SlurmCluster
from workers.settings import ClusterSettings

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

OURS, PERSON = "games", "daemon"
"""Accounts of every Debian, so that the daemons' own calls, which are root's, are not counted for either."""
INTERVAL_S = float(ClusterSettings.model_fields["poll_interval_s"].default)
LOOK_S = 20.0
_BY_USER = re.compile(r"^\s+(\S+)\s+\(\s*\d+\)\s+count:(\d+)", re.MULTILINE)


class As:
    """Commands as another account."""

    def __init__(self, account: str, runner: LocalRunner) -> None:
        self._words = ("setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", "--")
        self._runner = runner

    async def run(self, *command: str, stdin: str = "") -> Finished:
        return await self._runner.run(*self._words, *command, stdin=stdin)


@pytest.fixture
def here(slurm: SlurmCluster) -> LocalRunner:
    return LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf))


@asynccontextmanager
async def a_loop_of_squeue(here: LocalRunner, every_s: float) -> AsyncIterator[None]:
    """A person who looks at the queue, again and again."""

    async def look() -> None:
        person = As(PERSON, here)
        while True:
            await asyncio.gather(person.run("squeue"), asyncio.sleep(every_s))

    looking = asyncio.create_task(look())
    yield
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking


def calls_by_user(slurm: SlurmCluster) -> dict[str, int]:
    """How many calls of each account slurmctld has counted since `sdiag --reset`."""
    by_user = slurm.run("sdiag").partition("statistics by user")[2].partition("Pending RPC")[0]
    return {user: int(count) for user, count in _BY_USER.findall(by_user)}


async def test_one_persons_loop_of_squeue_asks_more_than_relight_with_its_default_interval(
    slurm: SlurmCluster, here: LocalRunner
) -> None:
    snapshots = ClusterSnapshots("alpha", SlurmCli(As(OURS, here)), INTERVAL_S)
    slurm.run("sdiag", "--reset")
    async with a_loop_of_squeue(here, every_s=1):
        reading = asyncio.create_task(snapshots.run())
        await asyncio.sleep(LOOK_S)
        reading.cancel()
    calls = calls_by_user(slurm)

    # squeue asks for partitions too, by a call of its own where it prints them.
    assert 0 < calls[OURS] < calls[PERSON], calls
    assert calls[OURS] <= 2 * (LOOK_S / INTERVAL_S + 1), "one reading an interval, of one call or two"


async def test_a_flood_of_our_own_is_held_to_the_limit_by_the_controllers_count(
    slurm: SlurmCluster, here: LocalRunner
) -> None:
    calls_per_s, flood = 2.0, 200
    scheduler = SlurmCli(PacedRunner(As(OURS, here), Pace(calls_per_s)))

    async def ask() -> None:
        with suppress(SchedulerError):
            await scheduler.job("1")

    slurm.run("sdiag", "--reset")
    asking = [asyncio.create_task(ask()) for _ in range(flood)]
    await asyncio.sleep(LOOK_S)
    calls = calls_by_user(slurm)[OURS]
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)

    allowed = calls_per_s * (BURST_S + LOOK_S + 1)
    assert calls_per_s * BURST_S / 2 < calls <= 2 * allowed, f"{calls} calls, {allowed:g} commands allowed"
    assert sum(task.cancelled() for task in asking) >= flood - allowed
