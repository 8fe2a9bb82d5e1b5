"""The table sums up, and a broken promise comes with the command that shows it again."""

from __future__ import annotations

from collections import Counter

from tests.chaos.blows import BlowKind
from tests.chaos.plan import make_plan
from tests.chaos.records import Breach, Observed, Violation
from tests.chaos.report import RunResult, complaints, table
from tests.chaos.test_oracle import clean, held_for

PLAN = make_plan(42, window_s=20, every_kind=True)
KILLS = Counter({BlowKind.KILL_WORKER: 3})
BROKEN = Violation(breach=Breach.LEFT_HELD, subject="job 7", detail="pending")


def result(*violations: Violation) -> RunResult:
    observed = Observed(jobs=(held_for(clean(), 2),))
    return RunResult.of(PLAN, observed, KILLS, violations, replayed=2, took_s=61.2, log="")


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name).strip()


def test_the_table_sums_over_all_runs() -> None:
    text = table([result(), result(BROKEN)])
    assert row(text, "runs  ") == "2"
    assert row(text, "kills: worker") == "6"
    assert row(text, "recoveries") == "2"
    assert row(text, "longest hold (s)") == "2.0"
    assert row(text, f"BROKEN: {Breach.LEFT_HELD.value}") == "1"
    assert row(text, f"BROKEN: {Breach.REQUEUED_TWICE.value}") == "0"


def test_nothing_is_complained_of_where_nothing_is_broken() -> None:
    assert complaints([result()], "real") == ""


def test_a_complaint_names_the_command_that_shows_it_again() -> None:
    assert "python -m tests.chaos --seed 42 --runs 1 --window-s 20 --every-kind --cluster real" in complaints(
        [result(BROKEN)], "real"
    )
