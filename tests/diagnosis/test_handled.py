"""An exception that a program caught while it started, and the same text of one that ended by it."""

from __future__ import annotations

import pytest

from recovery.attribution.attribute import attribute
from recovery.model import Action, Category, SymptomKind
from tests.diagnosis.stories import Story


def _starting(story: Story, minutes: int = 4, rank: int = 9) -> Story:
    for minute in range(minutes * 3):
        story.wait(20).say(f"reading the index, {minute * 7} %", rank // 8, rank, stream="stdout")
    return story


def _raised() -> Story:
    return Story().bootstrap().wait(5).traceback(9, "FileNotFoundError: [Errno 2] No such file or directory: '/i.npy'")


def test_a_process_that_is_at_work_minutes_later_caught_its_exception() -> None:
    assert attribute(_starting(_raised()).incident()).symptom is SymptomKind.NONE


@pytest.mark.parametrize(
    "story", [_raised(), _raised().wait(600), _starting(_raised(), rank=3), _starting(_raised(), 1)]
)
def test_silence_or_the_words_of_others_do_not_say_that_it_was_caught(story: Story) -> None:
    assert attribute(story.incident()).suggested is Action.STOP


def test_what_was_raised_last_by_a_process_that_has_ended_may_be_why() -> None:
    verdict = attribute(_starting(_raised()).srun_exit(1, 1).incident())
    assert (verdict.symptom, verdict.category) == (SymptomKind.CRASH, Category.USER_CODE)
    assert "FileNotFoundError" in verdict.summary


def test_a_caught_exception_is_not_the_reason_of_a_later_end() -> None:
    story = _starting(_raised()).traceback(9, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    verdict = attribute(story.srun_exit(1, 1).incident())
    assert (verdict.category, verdict.culprits) == (Category.HARDWARE_GPU, (Story().node(1),))
