"""What is remembered of the tasks of arrays: bounded, and the same however often it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from recovery.arrays import FORGET_AFTER, KEPT_ARRAYS, KEPT_FAILURES, ArrayLedger, ArrayStanding, TaskFailed

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def failed(task: int, fingerprint: str = "user_code/key_error/train.py:7", *, array: str = "3") -> TaskFailed:
    return TaskFailed(array_id=array, job_id=f"{array}_{task}", fingerprint=fingerprint)


def ledger_of(*failures: TaskFailed) -> ArrayLedger:
    ledger = ArrayLedger()
    for failure in failures:
        ledger = ledger.with_failure(failure, NOW)
    return ledger


def test_tasks_that_failed_alike_are_counted_beside_all_that_started() -> None:
    last = failed(3)
    ledger = ledger_of(failed(1), failed(2, "data/missing/x"), last).with_completed("3", NOW)
    standing = ledger.standing(last, NOW)
    assert standing == ArrayStanding(same=2, failed=3, completed=1)
    assert standing.started == 4


def test_another_array_is_another_matter() -> None:
    ledger = ledger_of(failed(1, array="7"), failed(2, array="7"), failed(1)).with_completed("7", NOW)
    assert ledger.standing(failed(1), NOW) == ArrayStanding(same=1, failed=1)


def test_the_next_failure_of_a_task_takes_the_place_of_its_last() -> None:
    ledger = ledger_of(failed(1), failed(2), failed(1, "data/missing/x"))
    assert ledger.standing(failed(2), NOW) == ArrayStanding(same=1, failed=2)


def test_an_id_that_slurm_uses_again_later_brings_no_old_failures_along() -> None:
    later = NOW + FORGET_AFTER
    ledger = ledger_of(failed(1), failed(2)).with_failure(failed(3), later)
    assert ledger.standing(failed(3), later) == ArrayStanding(same=1, failed=1)


def test_what_people_were_told_of_is_kept_with_the_array() -> None:
    ledger = ledger_of(failed(1)).with_told("3", "f", NOW)
    assert ledger.of("3", NOW).told == ("f",)
    assert ledger.of("4", NOW).told == ()


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5), st.sampled_from("abc")), max_size=60))
def test_to_tell_all_of_it_again_changes_no_count(told: list[tuple[int, int, str]]) -> None:
    once = ledger_of(*(failed(task, name, array=str(array)) for task, array, name in told))
    newest = {(array, task): name for task, array, name in told}
    twice = once
    for (array, task), name in newest.items():
        twice = twice.with_failure(failed(task, name, array=str(array)), NOW + timedelta(seconds=1))
    for (array, task), name in newest.items():
        question = failed(task, name, array=str(array))
        assert once.standing(question, NOW) == twice.standing(question, NOW + timedelta(seconds=1))


def test_the_ledger_stays_small_whatever_is_told() -> None:
    ledger = ArrayLedger()
    for number in range(KEPT_ARRAYS + 20):
        ledger = ledger.with_completed(str(number), NOW)
    for task in range(KEPT_FAILURES + 20):
        ledger = ledger.with_failure(failed(task, array="1000"), NOW)
    assert len(ledger.arrays) == KEPT_ARRAYS
    assert len(ledger.of("1000", NOW).failures) == KEPT_FAILURES
    assert ledger.of("0", NOW).completed == 0
