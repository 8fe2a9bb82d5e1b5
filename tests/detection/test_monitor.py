from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.detection.findings import FatalLine
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.settings import DetectionSettings
from recovery.detection.state import MonitorState

from .attempt import Attempt, at, match, megatron

MAX_STATE_BYTES = 4_000

LINES = st.one_of(
    st.integers(1, 60).map(megatron),
    st.integers(1, 60).map(lambda n: f"  successfully saved checkpoint from iteration {n:8d} to /ckpt"),
    st.integers(1, 60).map(lambda n: f" loading checkpoint from /ckpt at iteration {n}"),
    st.integers(1, 60).map(lambda n: f" 10%|█         | {n}/100 [08:29<1:14:08,  2.83s/it]"),
    st.integers(1, 60).map(lambda n: f"Validation: iteration {n}/60"),
    st.sampled_from(
        [
            "{'loss': 1.4, 'grad_norm': 1.2, 'learning_rate': 7.4e-06, 'epoch': 0.07}",
            "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            "RuntimeError: CUDA error: unspecified launch failure",
            "Evaluating on 512 samples",
            "; will restart worker group",
            "Watchdog caught collective operation timeout: WorkNCCL(",
            "[after training is done] datetime: x",
            "heartbeat",
        ]
    ),
    st.text(max_size=40),
)
STEPS = st.lists(st.tuples(st.floats(0, 900), st.booleans(), st.lists(LINES, max_size=4)), max_size=40)


def run(steps: list[tuple[float, bool, list[str]]], *, restore: bool) -> Attempt:
    attempt = Attempt(restore=restore)
    for seconds, fresh, lines in steps:
        attempt.fresh = fresh
        attempt.wait(seconds, every_s=25).say(*lines)
    return attempt


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_restored_monitor_goes_on_exactly_like_one_that_was_never_interrupted(
    steps: list[tuple[float, bool, list[str]]],
) -> None:
    uninterrupted, restored = run(steps, restore=False), run(steps, restore=True)
    assert restored.findings == uninterrupted.findings
    assert restored.monitor.state == uninterrupted.monitor.state


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_lines_delivered_twice_change_no_finding(steps: list[tuple[float, bool, list[str]]]) -> None:
    numbered = [(s, f, [line for line in lines if not line.startswith("{")]) for s, f, lines in steps]
    doubled = [(s, f, [line for line in lines for _ in range(2)]) for s, f, lines in numbered]
    once, twice = run(numbered, restore=False), run(doubled, restore=False)
    assert [found.key for found in twice.findings] == [found.key for found in once.findings]


def after_a_long_training() -> Attempt:
    """An attempt whose every memory is full."""
    attempt = Attempt()
    for n in range(1, 400):
        attempt.wait(1.2345).say(megatron(n, step_ms=1_234.5 + n % 7 + (100 if n > 360 else 0)))
        if n % 20 == 0:
            attempt.wait(11.25).say("Validation: iteration 1/60", f"saving checkpoint at iteration {n} to /ckpt")
            attempt.wait(12.75).say(f"  successfully saved checkpoint from iteration {n} to /ckpt")
    return attempt


FULL = after_a_long_training().monitor.state


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(LINES, st.text(min_size=200, max_size=400)), max_size=60))
def test_the_state_stays_small_enough_for_a_heartbeat(lines: list[str]) -> None:
    monitor = AttemptMonitor(DetectionSettings(), match, FULL)
    source = "/a/very/long/path" * 100
    for second, line in enumerate(lines):
        monitor.feed(line, at(2_000 + second * 3.7), source=source, number=10**9)
        monitor.feed("CUDA error " + line, at(2_000 + second * 3.7), source=source, number=10**9)
        monitor.feed("Watchdog caught collective operation timeout " + line, at(2_000 + second * 3.7), source=source)
        monitor.look(at(2_000 + second * 3.7), log_fresh=True)
        assert len(monitor.state.model_dump_json().encode()) < MAX_STATE_BYTES


def test_progress_tells_how_far_an_attempt_came() -> None:
    attempt = Attempt().say("  successfully loaded checkpoint from /ckpt [ t 0/1, p 0/1 ] at iteration 500")
    attempt.train(501, 520).say("saving checkpoint at iteration     520 to /ckpt").wait(5)
    assert attempt.monitor.progress.checkpoint is None
    attempt.say("  successfully saved checkpoint from iteration     520 to /ckpt").train(521, 530)
    progress = attempt.monitor.progress
    assert (progress.resumed_from, progress.first_iteration) == (500, 501)
    assert (progress.iteration, progress.checkpoint) == (530, 520)
    assert (progress.last_at, progress.phase) == (at(35), "train")
    assert progress.longest_interval_s == 5


def test_a_checkpoint_that_was_only_begun_is_none() -> None:
    attempt = Attempt().train(1, 10).say("saving checkpoint at iteration      10 to /ckpt").wait(50)
    assert attempt.monitor.progress.checkpoint is None
    assert attempt.monitor.progress.phase == "checkpoint"


def test_a_trainer_that_prints_no_end_of_a_checkpoint_shows_it_by_training_on() -> None:
    bar = " 10%|█         | {}/1752 [08:29<1:14:08,  2.83s/it]"
    attempt = Attempt().say(bar.format(500), "Saving model checkpoint to /out/checkpoint-500").wait(20)
    assert attempt.monitor.progress.checkpoint is None
    attempt.say(bar.format(501))
    assert attempt.monitor.progress.checkpoint == 500


def test_a_load_is_shown_by_training_past_it_where_no_line_says_so() -> None:
    attempt = Attempt().say("[titan] - root - INFO - Loading the checkpoint from /ckpt/run/step-90.").wait(20)
    assert attempt.monitor.progress.resumed_from is None
    attempt.say("[titan] - root - INFO - step: 100  loss:  4.1  grad_norm:  1.2")
    assert attempt.monitor.progress.resumed_from == 90


def test_a_bar_of_another_length_is_another_loop() -> None:
    attempt = Attempt()
    for n in range(1, 20):
        attempt.wait(1).say(f" 1%|█         | {n}/1752 [08:29<1:14:08,  2.83s/it]")
    for n in range(1, 50):
        attempt.wait(1).say(f" 1%|█         | {n}/64 [08:29<1:14:08,  2.83s/it]")
    assert attempt.monitor.progress.iteration == 19
    assert attempt.monitor.progress.phase == "evaluate"


def test_steps_that_count_from_the_start_in_every_epoch_are_progress() -> None:
    attempt = Attempt()
    for _ in range(300):
        for n in range(5):
            attempt.wait(2).say(f"step {n} | loss 2.1")
    assert attempt.findings == []


def test_a_line_with_halves_of_characters_is_quoted_without_them() -> None:
    attempt = Attempt().train(1, 5).say("RuntimeError: CUDA error \ud800 password=hunter2-and-more")
    (found,) = attempt.findings
    assert isinstance(found, FatalLine)
    assert found.line.text == "RuntimeError: CUDA error ? password=[redacted]"


def test_a_monitor_of_a_new_attempt_knows_nothing_of_the_one_before() -> None:
    assert AttemptMonitor(DetectionSettings(), match).state == MonitorState()


def test_the_jobs_own_pattern_is_read() -> None:
    own = DetectionSettings().for_job(
        hang_after_s=20, progress_pattern=r"tick (?P<iteration>\d+) in (?P<step_time_s>[\d.]+)"
    )
    attempt = Attempt(own)
    for n in range(1, 10):
        attempt.wait(1).say(f"[node01] tick {n} in 1.0")
    assert attempt.monitor.progress.iteration == 9
    assert attempt.wait(25).kinds() == ["stall"]
