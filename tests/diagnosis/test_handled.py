"""What a program caught while it started, or catches all the time, and the same text of one that ended by it."""

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


def test_what_one_process_caught_at_the_start_others_caught_too() -> None:
    story = Story().bootstrap().wait(5)
    for rank in (8, 9, 17):
        story.say("WARNING: micro batch 16 does not fit: CUDA out of memory. Trying 8.", rank // 8, rank)
    assert attribute(_starting(story).incident()).symptom is SymptomKind.NONE


def test_nothing_goes_on_without_its_gpu() -> None:
    story = Story().bootstrap().wait(5).traceback(9, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    assert attribute(_starting(story).incident()).category is Category.HARDWARE_GPU


def _upload_fails(story: Story, times: int) -> Story:
    for _ in range(times):
        story.iterations().traceback(0, "ConnectionError: Remote end closed connection", "/workspace/hooks.py", "push")
    return story


def test_an_exception_that_training_survived_again_and_again_is_no_failure_the_next_time() -> None:
    assert attribute(_upload_fails(Story(), 3).incident()).symptom is SymptomKind.NONE
    assert attribute(_upload_fails(Story(), 2).incident()).symptom is SymptomKind.CRASH


def test_a_habit_may_be_the_reason_when_its_process_has_ended() -> None:
    verdict = attribute(_upload_fails(Story(), 3).wait(2).agent_failed(0).srun_exit(0).incident())
    assert (verdict.symptom, verdict.category) == (SymptomKind.CRASH, Category.USER_CODE)
