"""Every input that is kept, one by one: what the fuzzer once failed on, and what is hostile by design."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, seeds

KEPT = sorted(path for path in (Path(__file__).parent / "kept").glob("*/*"))
SLOW_S = 1.0
SEEDS_TRIED = 25


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_kept_input_is_answered_and_soon(path: Path) -> None:
    began = time.process_time()
    TARGETS[path.parent.name](path.read_bytes())
    assert time.process_time() - began < SLOW_S


@pytest.mark.parametrize("target", TARGETS)
def test_the_seeds_are_answered(target: str) -> None:
    every = list(seeds(target))
    for seed in every[:: 1 + len(every) // SEEDS_TRIED]:
        TARGETS[target](seed)


def test_every_target_keeps_inputs() -> None:
    assert {path.parent.name for path in KEPT} == TARGETS.keys()
