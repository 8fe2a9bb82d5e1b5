"""One seeded run on a simulated cluster and on a real one at the same time; `make chaos` has many, and more of each."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.arena import simulated_arena
from tests.chaos.blows import BlowKind
from tests.chaos.kinds import JobKind
from tests.chaos.plan import make_plan
from tests.chaos.real_arena import real_arena
from tests.chaos.report import complaints
from tests.chaos.run import run
from tests.chaos.servers import servers_up
from tests.slurm.cluster import why_unavailable

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(500)]

SEED = 5420
WINDOW_S = 12.0
BLOWS = (
    *(BlowKind.KILL_WORKER, BlowKind.KILL_TEMPORAL, BlowKind.KILL_POSTGRES, BlowKind.KILL_WATCHDOG),
    *(BlowKind.STOP_WORKER, BlowKind.STOP_TEMPORAL),
)
"""Those on the house of this seed; what people do falls only on a job that is caught between two attempts. It spares
the controller, which is asked less often after it was slow, and that takes long."""
KINDS = (
    *(JobKind.XID79, JobKind.OWN_EXCLUSIONS, JobKind.SEGFAULT, JobKind.CANCELLED_HELD, JobKind.HELD_TWICE),
    *(JobKind.HELD, JobKind.NO_REQUEUE, JobKind.OBSERVED, JobKind.NOT_OPTED_IN),
)


async def test_every_job_recovers_exactly_once_while_everything_is_broken() -> None:
    plan = make_plan(SEED, window_s=WINDOW_S, kinds=KINDS)
    async with servers_up() as servers:
        runs = {"simulated": run(servers, plan, simulated_arena)}
        if why_unavailable() is None:
            runs["real"] = run(servers, plan, real_arena)
        results = dict(zip(runs, await asyncio.gather(*runs.values()), strict=True))
    for cluster, result in results.items():
        assert not result.violations, complaints([result], cluster)
        assert result.recoveries >= 2
        assert {kind for kind in BLOWS if not result.blows.get(kind)} == set()
