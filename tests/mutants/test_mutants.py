"""Ten planted bugs, one for each promise, and each is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mutants import checks
from tests.mutants.planted import MUTANTS

CHECKS = sorted({mutant.caught_by for mutant in MUTANTS.values()}, key=lambda check: check.__name__)


def test_each_promise_has_a_mutant_of_its_own() -> None:
    assert len({mutant.promise for mutant in MUTANTS.values()}) == len(MUTANTS) == 10


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_a_bug_nothing_is_found(check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SEEDS", 40)  # tests/protocol and tests/model play many
    check()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        mutant.caught_by()
