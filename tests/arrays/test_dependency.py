"""What Slurm says of dependencies, as it was seen to say it, and which of them are lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.dependency import Dependency, Term, read_dependency


def test_terms_that_must_all_hold_and_terms_of_which_one_is_enough_are_told_apart() -> None:
    assert read_dependency("afterok:16_*(unfulfilled),singleton(unfulfilled)") == Dependency(
        terms=(Term(kind="afterok", job="16_*"), Term(kind="singleton"))
    )
    assert read_dependency("afterok:11(failed)?afterany:1+30(unfulfilled)") == Dependency(
        terms=(Term(kind="afterok", job="11", failed=True), Term(kind="afterany", job="1")), one_is_enough=True
    )


@pytest.mark.parametrize(
    ("text", "failed", "for_good", "lost"),
    [
        ("afterok:11(unfulfilled)", "11", True, True),
        ("afterok:11(unfulfilled)", "11", False, False),
        ("afterok:11(failed)", "11", False, True),
        ("afterok:11(failed)", "12", True, False),
        ("afterany:11(unfulfilled)", "11", True, False),
        ("afternotok:11(unfulfilled)", "11", True, False),
        ("singleton(unfulfilled)", "11", True, False),
        ("afterok:1(unfulfilled),afterok:11(unfulfilled)", "11", True, True),
        ("afterok:1(unfulfilled)?afterok:11(failed)", "11", True, False),
        ("afterok:1(failed)?afterok:11(unfulfilled)", "11", True, True),
        ("afterok:16_*(unfulfilled)", "16_2", True, True),
        ("afterok:16_2(unfulfilled)", "16_2", True, True),
        ("afterok:16_2(unfulfilled)", "16_3", True, False),
        ("afterok:1(unfulfilled)", "11", True, False),
        ("", "11", True, False),
        ("after ok:11?afterok:11(failed)", "11", True, False),
    ],
)
def test_what_needs_the_success_of_a_failed_job_is_lost(text: str, failed: str, for_good: bool, lost: bool) -> None:
    assert read_dependency(text).is_lost(failed, for_good=for_good) is lost


@given(st.text() | st.from_regex(r"[a-z]{0,9}:[0-9_*+]{0,9}[(]?[a-z]{0,9}[)]?[,?]", fullmatch=True))
def test_anything_can_be_read(text: str) -> None:
    read_dependency(text * 3).is_lost("11", for_good=True)
