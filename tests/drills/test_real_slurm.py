"""The controller of a real Slurm is lost."""

from __future__ import annotations

import pytest

from tests.drills.few_jobs import DRILLED, assert_unbroken, drilled
from tests.slurm.accounting import why_no_accounts
from tests.slurm.cluster import why_unavailable

pytestmark = [pytest.mark.slurm, *DRILLED]


async def test_losing_the_real_slurmctld_blinds_every_job_and_leads_to_no_act() -> None:
    if (reason := why_unavailable() or why_no_accounts()) is not None:
        pytest.skip(f"real Slurm tests skipped: {reason}")
    assert_unbroken(await drilled(["slurmctld is killed"]))
