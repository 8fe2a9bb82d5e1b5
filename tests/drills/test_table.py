"""The table of outages, before and after the drills."""

from __future__ import annotations

from tests.drills.drill import DrillResult
from tests.drills.house import Scene
from tests.drills.outages import OUTAGES
from tests.drills.report import table


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
