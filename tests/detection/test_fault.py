from __future__ import annotations

from recovery.detection.findings import FatalLine, FaultConfirmed
from recovery.detection.settings import DetectionSettings

from .attempt import Attempt, at, megatron

XID = "[ 917492.3] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CUDA = "RuntimeError: CUDA error: an illegal memory access was encountered"


def test_a_fatal_line_is_told_at_once_with_its_evidence() -> None:
    attempt = Attempt().train(1, 20).say(XID)
    (found,) = attempt.findings
    assert isinstance(found, FatalLine)
    assert found.at == at(20)
    assert found.line.text == XID
    assert (found.line.signature, found.line.source) == ("xid-79", "/scratch/slurm-1.out")


def test_a_fatal_line_and_then_silence_while_the_job_runs_is_a_confirmed_fault() -> None:
    attempt = Attempt().train(1, 20).say(XID).wait(9)
    assert attempt.kinds() == ["fatal_line"]
    attempt.wait(2)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]
    confirmed = attempt.findings[1]
    assert isinstance(confirmed, FaultConfirmed)
    assert (confirmed.at, confirmed.grace_s) == (at(20), 10)


def test_a_chatty_log_does_not_keep_a_fault_from_being_confirmed() -> None:
    attempt = Attempt().train(1, 20).say(XID).wait(12, chatter="heartbeat")
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]


def test_a_line_still_in_a_buffer_is_no_survival() -> None:
    attempt = Attempt().train(1, 20).say(XID).wait(1).say(megatron(21), megatron(22)).wait(11)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]


def test_training_that_goes_on_withdraws_the_fault() -> None:
    attempt = Attempt().train(1, 20).say(CUDA).train(21, 60)
    assert attempt.kinds() == ["fatal_line", "fault_survived"]


def test_a_survived_text_is_no_news_again_but_silence_after_it_is() -> None:
    attempt = Attempt().train(1, 20).say(CUDA).train(21, 60).say(CUDA).train(61, 80)
    assert attempt.kinds() == ["fatal_line", "fault_survived"]
    attempt.say(CUDA).wait(12)
    assert attempt.kinds()[2:] == ["fault_confirmed"]


def test_a_slow_job_is_given_time_until_its_next_marker_is_due() -> None:
    attempt = Attempt().train(1, 5, every_s=300).say(CUDA).wait(350, every_s=10)
    assert attempt.kinds() == ["fatal_line"]
    attempt.wait(20)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]


def test_the_grace_is_three_intervals_up_to_the_cap() -> None:
    attempt = Attempt().train(1, 5, every_s=15).say(CUDA).wait(44)
    assert attempt.kinds() == ["fatal_line"]
    attempt.wait(2)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]


def test_a_fault_at_start_up_has_a_longer_grace() -> None:
    attempt = Attempt().say(CUDA).wait(290)
    assert attempt.kinds() == ["fatal_line"]
    attempt.wait(20)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]


def test_a_fault_before_the_pace_is_known_has_the_grace_of_a_start() -> None:
    attempt = Attempt().wait(30).say("{'loss': 1.4, 'epoch': 0.01}").say(CUDA).wait(80)
    attempt.say("{'loss': 1.3, 'epoch': 0.02}").wait(80).say("{'loss': 1.2, 'epoch': 0.03}")
    assert attempt.kinds() == ["fatal_line"]


def test_workers_that_torchrun_starts_again_are_a_survived_fault() -> None:
    attempt = Attempt().train(1, 20).say(CUDA).wait(3)
    attempt.say("W0512 00:00:39.0 9081 api.py:897] Sending process 54237 closing signal SIGTERM").wait(20)
    attempt.say("[default] Worker group FAILED. 3/3 attempts left; will restart worker group").wait(60)
    attempt.say(" loading checkpoint from /ckpt at iteration 15").wait(30).train(16, 40)
    assert attempt.kinds() == ["fatal_line", "fault_survived"]


def test_a_launcher_that_takes_its_workers_down_is_given_time_to_end_the_job() -> None:
    attempt = Attempt().train(1, 20).say(CUDA)
    attempt.say("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.").wait(55)
    assert attempt.kinds() == ["fatal_line"]
    attempt.wait(10)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]


def test_nothing_is_confirmed_while_the_log_cannot_be_read() -> None:
    attempt = Attempt().train(1, 20).say(XID)
    attempt.fresh = False
    attempt.wait(1_000, every_s=5)
    assert attempt.kinds() == ["fatal_line"]


def test_one_fault_is_told_once_however_many_lines_follow() -> None:
    attempt = Attempt().train(1, 20).say(XID, CUDA, *([CUDA] * 100)).wait(11)
    confirmed = attempt.findings[-1]
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]
    assert isinstance(confirmed, FaultConfirmed)
    assert confirmed.line.signature == "xid-79"
    assert len(confirmed.later) == 2


def test_the_grace_can_be_set() -> None:
    attempt = Attempt(DetectionSettings(fault_grace_s=2, fault_grace_cap_s=3)).train(1, 20).say(XID).wait(4)
    assert attempt.kinds() == ["fatal_line", "fault_confirmed"]
