"""When most tasks of an array fail in the same way, they are not retried."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.arrays import ArrayStanding
from recovery.model import Action, Category
from recovery.policy import ArrayStop, Decision, PolicySettings, decide
from tests.unit.situations import a_situation, a_verdict, bug, gpu, past


def decided(standing: ArrayStanding | None, settings: PolicySettings | None = None, **facts: Any) -> Decision:
    verdict = facts.pop("verdict", bug())
    return decide(a_situation(verdict, array=standing, **facts), settings or PolicySettings())


def test_the_third_task_that_fails_in_the_same_way_is_stopped() -> None:
    decision = decided(ArrayStanding(same=3, failed=3, completed=1, running=2))
    assert (decision.action, decision.rule) == (Action.STOP, "array_systematic")
    assert decision.reason == "3 of 6 started tasks of the array failed in the same way: the failure is systematic"


@pytest.mark.parametrize(
    "standing",
    [
        None,
        ArrayStanding(same=2, failed=2),
        ArrayStanding(same=3, failed=3, completed=4),
        ArrayStanding(same=3, failed=3, running=4),
        ArrayStanding(same=3, failed=7),
    ],
    ids=["no array", "two tasks", "most completed", "most run", "each in its own way"],
)
def test_a_failure_of_few_tasks_is_each_tasks_own(standing: ArrayStanding | None) -> None:
    assert decided(standing).action is Action.RESTART


@pytest.mark.parametrize(
    "verdict",
    [gpu("node02"), a_verdict(category=Category.STORAGE, cause="stale_handle"), a_verdict()],
    ids=["hardware", "storage", "unknown"],
)
def test_what_the_tasks_do_not_bring_along_themselves_never_stops_them(verdict: Any) -> None:
    decision = decided(ArrayStanding(same=9, failed=9), verdict=verdict)
    assert decision.action is not Action.STOP


def test_a_task_that_got_further_is_retried() -> None:
    history = (past(0, gpu("node02"), checkpoint=10),)
    decision = decided(ArrayStanding(same=3, failed=3), history=history, checkpoint=20)
    assert decision.action is Action.RESTART


def test_the_operator_sets_how_many_and_how_large_a_part() -> None:
    strict = PolicySettings(array_stop=ArrayStop(tasks=2, fraction=0.1))
    assert decided(ArrayStanding(same=2, failed=2, completed=10), strict).action is Action.STOP
    assert decided(ArrayStanding(same=2, failed=2, completed=19), strict).action is Action.RESTART
    never = PolicySettings(array_stop=ArrayStop(tasks=None))
    assert decided(ArrayStanding(same=50, failed=50), never).action is Action.RESTART
