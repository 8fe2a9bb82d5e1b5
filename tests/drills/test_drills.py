"""Some of the outages under a few jobs; ``make drills`` has all of them under 200."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from recovery.detection.monitor import AttemptMonitor
from tests.drills.__main__ import drill
from tests.drills.drill import DrillResult
from tests.drills.house import Scene
from tests.drills.outages import OUTAGES
from tests.drills.report import table
from tests.slurm.accounting import why_no_accounts
from tests.slurm.cluster import why_unavailable
from tests.stores.servers import NoStore

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(400)]

JOBS = 6
HANG_AFTER_S = 10.0
"""Longer than a busy machine may keep all of a test waiting."""
IN_FILES = ("log files vanish", "slurmctld answers garbage", "Temporal is gone")


async def drilled(names: Sequence[str], jobs: int = JOBS) -> list[DrillResult]:
    outages = [outage for outage in OUTAGES if outage.name in names]
    assert len(outages) == len(names)
    return [result async for result in drill(outages, jobs=jobs, hang_after_s=HANG_AFTER_S)]


def assert_unbroken(results: Sequence[DrillResult]) -> None:
    assert not [result for result in results if result.violations], f"\n{table(results)}"


async def test_losing_the_logs_or_a_server_leads_to_no_act_and_a_crash_is_answered_all_the_same() -> None:
    assert_unbroken(await drilled(IN_FILES))


@pytest.mark.parametrize("name", ["Loki never answers", "VictoriaLogs is gone"])
async def test_losing_a_log_store_blinds_every_job_and_no_line_is_lost(name: str) -> None:
    try:
        assert_unbroken(await drilled([name]))
    except NoStore as missing:
        pytest.skip(str(missing))


@pytest.mark.slurm
async def test_losing_the_real_slurmctld_blinds_every_job_and_leads_to_no_act() -> None:
    if (reason := why_unavailable() or why_no_accounts()) is not None:
        pytest.skip(f"real Slurm tests skipped: {reason}")
    assert_unbroken(await drilled(["slurmctld is killed"]))


async def test_a_watch_that_takes_blindness_for_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.drills.drill.PATIENCE_S", 20.0)
    look = AttemptMonitor.look

    def trusting(self: AttemptMonitor, now: datetime, **_: Any) -> Any:
        return look(self, now, log_fresh=True)

    monkeypatch.setattr(AttemptMonitor, "look", trusting)
    [result] = await drilled(["log files vanish"], jobs=3)
    assert result.acts == result.jobs
    assert "jobs that were well were not left alone" in result.violations[-1]


def test_the_table_shows_each_outage_and_what_was_broken() -> None:
    facts = {"jobs": 200, "lasted_s": 31.6, "acts": 0, "lines_lost": 2}
    times = {"blind_after_s": 4.25, "seen_after_s": 0.5, "shown_after_s": 3.0}
    seen = DrillResult(outage="log files vanish", **facts, **times, violations=())
    unseen = DrillResult(outage="PostgreSQL", **facts, **dict.fromkeys(times), violations=("2 lines were never heard",))
    assert table([seen, unseen]).splitlines() == [
        "outage            jobs  lasted s  blind after s  acts  seen after s  shown after s  lines lost",
        "log files vanish   200        32            4.2     0           0.5            3.0           2",
        "PostgreSQL         200        32              -     0             -              -           2",
        "",
        "PostgreSQL: 2 lines were never heard",
    ]


def test_no_scene_is_without_an_outage_and_no_two_have_one_name() -> None:
    assert {outage.scene for outage in OUTAGES} == set(Scene)
    assert len({outage.name for outage in OUTAGES}) == len(OUTAGES)
