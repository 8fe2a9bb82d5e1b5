from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.detection.findings import Stall
from recovery.detection.markers import Phase
from recovery.detection.settings import DetectionSettings

from .attempt import Attempt, at, megatron

WATCHDOG = (
    "[rank3]:[E301 12:10:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4100, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600019 milliseconds "
    "before timing out."
)


def only_stall(attempt: Attempt) -> Stall:
    (found,) = attempt.findings
    assert isinstance(found, Stall)
    return found


def test_silence_after_steady_steps_is_a_stall_at_the_floor() -> None:
    attempt = Attempt().train(1, 20).wait(700)
    stall = only_stall(attempt)
    assert stall.since == at(20)
    assert stall.deadline_s == 600
    assert stall.phase is Phase.TRAIN
    assert "iteration       20/" in stall.evidence[0].text


def test_a_chatty_log_does_not_hide_a_stall() -> None:
    attempt = Attempt().train(1, 20).wait(700, chatter="heartbeat: all GPUs at 100 % utilisation")
    assert only_stall(attempt).since == at(20)


def test_the_same_iteration_again_is_no_progress() -> None:
    attempt = Attempt().train(1, 20).wait(700, chatter=megatron(20))
    assert only_stall(attempt).since == at(20)


def test_a_line_that_says_something_begins_does_not_move_the_start_of_the_wait() -> None:
    attempt = Attempt().train(1, 20).say("saving checkpoint at iteration      20 to /ckpt").wait(5)
    attempt.say("  successfully saved checkpoint from iteration      20 to /ckpt")
    attempt.wait(2_500, chatter="saving checkpoint at iteration      40 to /ckpt", every_s=20)
    stall = only_stall(attempt)
    assert stall.phase is Phase.CHECKPOINT
    assert stall.since == at(25)


def test_steps_longer_than_the_floor_are_no_stall() -> None:
    attempt = Attempt().train(1, 6, every_s=900).wait(2_000, every_s=10)
    assert attempt.findings == []
    attempt.wait(1_000, every_s=10)
    assert only_stall(attempt).deadline_s == 2_700


def test_the_first_steps_of_a_slow_job_are_no_stall() -> None:
    assert Attempt().train(1, 2, every_s=1_500).wait(2_000, every_s=10).findings == []


def test_a_long_evaluation_is_no_stall_and_an_endless_one_is() -> None:
    attempt = Attempt().train(1, 20).say("Evaluating on 51200 samples").wait(3_000, every_s=10)
    assert attempt.findings == []
    attempt.wait(1_000, chatter="heartbeat", every_s=10)
    assert only_stall(attempt).phase is Phase.EVALUATE


def test_evaluation_steps_are_progress() -> None:
    attempt = Attempt().train(1, 20)
    for n in range(1, 30):
        attempt.wait(300, every_s=10).say(f"Validation: iteration {n}/30")
    assert attempt.findings == []


def test_no_verdict_when_no_progress_was_ever_seen() -> None:
    assert Attempt().wait(100_000, chatter="training is well, thank you", every_s=20).findings == []


def test_a_loaded_checkpoint_alone_is_no_reason_to_expect_iterations() -> None:
    attempt = Attempt().say("  successfully loaded checkpoint from /ckpt [ t 0/1, p 0/1 ] at iteration 500")
    assert attempt.wait(50_000, every_s=20).findings == []


def test_a_start_up_deadline_counts_only_when_it_is_set() -> None:
    attempt = Attempt(DetectionSettings(startup_after_s=1_000)).wait(1_100)
    stall = only_stall(attempt)
    assert (stall.phase, stall.deadline_s) == (Phase.START_UP, 1_000)


def test_no_verdict_while_the_log_cannot_be_read() -> None:
    attempt = Attempt().train(1, 20)
    attempt.fresh = False
    assert attempt.wait(20_000, every_s=10).findings == []


def test_a_log_that_can_be_read_again_is_given_time_to_catch_up() -> None:
    attempt = Attempt().train(1, 20)
    attempt.fresh = False
    attempt.wait(5_000, every_s=10)
    attempt.fresh = True
    assert attempt.wait(20).findings == []
    attempt.say(megatron(21)).wait(100)
    assert attempt.findings == []


def test_time_in_which_nobody_watched_is_not_learned_as_an_interval() -> None:
    attempt = Attempt().train(1, 20)
    attempt.second += 20_000
    attempt.train(21, 25)
    assert attempt.monitor.progress.longest_interval_s < 10
    attempt.wait(700)
    assert only_stall(attempt).deadline_s == 600


def test_a_backlog_read_at_once_is_learned_from_the_step_times_it_states() -> None:
    attempt = Attempt().say(*(megatron(n, step_ms=400_000) for n in range(1, 10)))
    attempt.wait(1_150, every_s=10)
    assert attempt.findings == []
    attempt.wait(100, every_s=10)
    assert only_stall(attempt).deadline_s == 1_200


def test_a_job_may_set_its_own_deadline() -> None:
    settings_ = DetectionSettings().for_job(hang_after_s=30, progress_pattern=None)
    assert only_stall(Attempt(settings_).train(1, 5).wait(40)).deadline_s == 30


def test_a_reported_communication_timeout_shortens_the_deadline() -> None:
    attempt = Attempt().train(1, 20).wait(60).say(WATCHDOG).wait(10)
    assert attempt.findings == []
    attempt.wait(30)
    stall = only_stall(attempt)
    assert stall.deadline_s == 60
    assert "Watchdog caught" in stall.evidence[1].text


def test_a_communication_timeout_before_the_last_step_shortens_nothing() -> None:
    assert Attempt().train(1, 20).say(WATCHDOG).train(21, 40).wait(300).findings == []


def test_nothing_is_a_stall_after_training_is_done() -> None:
    attempt = Attempt().train(1, 20).say("[after training is done] datetime: 2026-03-01 12:00:20 ")
    assert attempt.wait(20_000, every_s=10).findings == []


def test_workers_that_start_again_are_given_the_time_of_a_start() -> None:
    attempt = Attempt().train(1, 20).say("[default] Worker group FAILED. 3/3 attempts left; will restart worker group")
    assert attempt.wait(3_000, every_s=10).findings == []
    attempt.wait(1_000, every_s=10)
    assert only_stall(attempt).phase is Phase.START_UP


def test_a_stall_is_repeated_until_it_is_taken_and_then_only_after_new_progress() -> None:
    attempt = Attempt().train(1, 20).wait(650)
    found = only_stall(attempt)
    attempt.wait(2_000, every_s=10)
    assert attempt.findings == [found]
    attempt.train(21, 40).wait(5_000, every_s=10)
    assert len(attempt.findings) == 2


def test_a_stall_not_taken_is_found_again_at_the_next_look() -> None:
    attempt = Attempt().train(1, 20)
    attempt.second += 29
    monitor = attempt.monitor
    found = None
    for _ in range(100):
        attempt.second += 10
        found = monitor.look(at(attempt.second), log_fresh=True)
    assert isinstance(found, Stall)
    assert monitor.look(at(attempt.second + 1), log_fresh=True) == found


def test_a_job_that_shows_only_checkpoints_is_judged_by_their_rhythm() -> None:
    attempt = Attempt()
    for n in range(100, 600, 100):
        attempt.wait(1_000, every_s=10).say(f"  successfully saved checkpoint from iteration {n:8d} to /ckpt")
    assert attempt.findings == []
    attempt.wait(4_000, every_s=10)
    assert attempt.kinds() == ["stall"]


NOT_PROGRESS = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        [
            "saving checkpoint at iteration      99 to /ckpt",
            " loading checkpoint from /ckpt at iteration 99",
            "Evaluating on 51200 samples",
            "***** Running Evaluation *****",
            "  0%|          | 0/1752 [00:00<1:22:38,  2.83s/it]",
            "Compiling the model with torch.compile",
            "; will restart worker group",
        ]
    ),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(NOT_PROGRESS, min_size=1, max_size=20))
def test_no_chatter_without_completed_markers_hides_a_stall(chatter: list[str]) -> None:
    attempt = Attempt().train(1, 20)
    for n in range(400):
        attempt.wait(10, every_s=10, chatter=chatter[n % len(chatter)])
    assert attempt.kinds() == ["stall"]


def test_a_pattern_that_cannot_be_used_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="no named group"):
        DetectionSettings(progress_pattern="step [0-9]+")
    with pytest.raises(ValueError, match="not valid RE2"):
        DetectionSettings().for_job(hang_after_s=None, progress_pattern="(?P<iteration>[0-9]+")
