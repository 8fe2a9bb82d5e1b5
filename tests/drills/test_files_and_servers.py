"""The log files, the simulated controller and Temporal are lost, and a bug that drills are there for is found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from recovery.detection.monitor import AttemptMonitor
from tests.drills.few_jobs import DRILLED, assert_unbroken, drilled

pytestmark = DRILLED

IN_FILES = ("log files vanish", "slurmctld answers garbage", "Temporal is gone")


async def test_losing_the_logs_or_a_server_leads_to_no_act_and_a_crash_is_answered_all_the_same() -> None:
    assert_unbroken(await drilled(IN_FILES))


async def test_a_watch_that_takes_blindness_for_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.drills.drill.PATIENCE_S", 20.0)
    look = AttemptMonitor.look

    def trusting(self: AttemptMonitor, now: datetime, **_: Any) -> Any:
        return look(self, now, log_fresh=True)

    monkeypatch.setattr(AttemptMonitor, "look", trusting)
    [result] = await drilled(["log files vanish"], jobs=3)
    assert result.acts == result.jobs
    assert "jobs that were well were not left alone" in result.violations[-1]
