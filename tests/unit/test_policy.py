"""What policy decides, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.model import Action, Category, Confidence, Verdict
from recovery.optin import OptIn
from recovery.policy import Budgets, Decision, PolicySettings, decide
from tests.unit.situations import a_situation, a_verdict, an_exclusion, bug, gpu, past, pasts, preempted

DEFAULTS = PolicySettings()
UNKNOWN = a_verdict()
PATIENT = PolicySettings(max_attempts_without_checkpoint=1_000)
"""So that budgets come to their end first."""


def decided(verdict: Verdict, *, settings: PolicySettings = DEFAULTS, **situation: Any) -> Decision:
    return decide(a_situation(verdict, **situation), settings)


# --- what is left alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["", "alice"])
@pytest.mark.parametrize("verdict", [UNKNOWN, gpu("node01"), bug(), preempted()])
def test_a_cancelled_job_is_never_touched_whatever_its_logs_say(by: str, verdict: Verdict) -> None:
    decision = decided(verdict, state="CANCELLED", cancelled_by=by)

    assert (decision.action, decision.rule) == (Action.NONE, "cancelled")
    assert (by or "its owner or an administrator") in decision.reason


def test_a_completed_job_is_done_even_if_a_fatal_line_stands_in_its_log() -> None:
    assert decided(gpu("node01"), state="COMPLETED").action is Action.NONE


def test_a_running_attempt_without_a_failure_is_left_alone() -> None:
    assert decided(a_verdict(suggested=Action.NONE), state="RUNNING").rule == "healthy"


def test_an_attempt_that_ended_is_restarted_though_its_logs_show_no_failure() -> None:
    assert decided(a_verdict(suggested=Action.NONE), state="FAILED").action is Action.RESTART


def test_a_running_attempt_waits_for_what_may_pass_and_an_ended_one_restarts_with_the_delay() -> None:
    storage = a_verdict(category=Category.STORAGE, cause="stale_handle", suggested=Action.WAIT)

    assert decided(storage, state="RUNNING").action is Action.WAIT
    ended = decided(storage, state="FAILED")
    assert (ended.action, ended.keep_delay) == (Action.RESTART, True)


def test_a_job_that_others_requeued_is_not_requeued_again() -> None:
    assert decided(UNKNOWN, state="NODE_FAIL", requeued=True).rule == "requeued_by_others"
    assert decided(bug(), state="FAILED", requeued=True, history=pasts(bug(), 1)).action is Action.NONE


def test_a_job_that_others_requeued_is_kept_off_a_named_culprit() -> None:
    decision = decided(gpu("node02"), state="NODE_FAIL", requeued=True)

    assert (decision.action, decision.exclude) == (Action.RESTART_EXCLUDE, ("node02",))


def test_a_job_that_others_requeued_after_its_owner_cancelled_is_left_alone() -> None:
    assert decided(gpu("node02"), state="CANCELLED", requeued=True).action is Action.NONE


# --- a person's word --------------------------------------------------------------------------------------------------


def test_exit_code_93_asks_for_no_requeue() -> None:
    assert decided(UNKNOWN, exit_code=93).rule == "exit_code"
    assert decided(UNKNOWN, exit_code=92).action is Action.RESTART


def test_the_exit_code_that_asks_for_no_requeue_is_the_operators_choice() -> None:
    settings = PolicySettings(no_requeue_exit_code=7)

    assert decided(UNKNOWN, exit_code=7, settings=settings).action is Action.STOP
    assert decided(UNKNOWN, exit_code=93, settings=settings).action is Action.RESTART


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_the_jobs_own_cap_counts_all_its_restarts_new_checkpoints_or_not(cap: int) -> None:
    optin = OptIn(max_restarts=cap)
    history = tuple(past(n, preempted(), checkpoint=n * 100) for n in range(cap))

    assert decided(preempted(), checkpoint=1_000, history=history, optin=optin).rule == "job_cap"
    assert cap == 0 or decided(preempted(), history=history[:-1], optin=optin).action is Action.RESTART


def test_the_jobs_own_cap_counts_restarts_that_are_too_long_ago_to_be_remembered_in_full() -> None:
    remembered = tuple(past(n, preempted(), checkpoint=n * 100) for n in range(60))[-50:]

    assert decided(preempted(), history=remembered, optin=OptIn(max_restarts=60)).rule == "job_cap"
    assert decided(preempted(), history=remembered, optin=OptIn(max_restarts=61)).action is Action.RESTART


def test_the_jobs_own_cap_can_only_lower_the_operators_limits() -> None:
    generous = OptIn(max_restarts=1_000)

    assert decided(bug(), history=pasts(bug(fingerprint=""), 1), optin=generous).action is Action.STOP


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "cause", "budget"),
    [
        (Category.HARDWARE_GPU, "gpu_fallen_off_bus", 10),
        (Category.HARDWARE_NETWORK, "link_down", 10),
        (Category.HOST, "node_down", 10),
        (Category.STORAGE, "stale_handle", 5),
        (Category.SOFTWARE_STACK, "nccl_mismatch", 3),
        (Category.USER_CODE, "key_error", 1),
        (Category.DATA, "bad_sample", 1),
        (Category.NUMERICAL, "nan_loss", 1),
        (Category.SCHEDULER, "time_limit", 3),
        (Category.SCHEDULER, "anything_else", 5),
        (Category.INFRA_TRANSIENT, "dns", 5),
        (Category.UNKNOWN, "unknown", 3),
        (Category.NONE, "", 3),
    ],
)
def test_each_kind_of_failure_has_its_own_number_of_restarts(category: Category, cause: str, budget: int) -> None:
    verdict = a_verdict(category=category, cause=cause)

    assert decided(verdict, history=pasts(verdict, budget - 1), settings=PATIENT).action is Action.RESTART
    spent = decided(verdict, history=pasts(verdict, budget), settings=PATIENT)
    assert (spent.action, spent.rule) == (Action.STOP, "budget")


def test_failures_of_another_kind_do_not_use_up_a_budget() -> None:
    history = (*pasts(gpu(), 5), *pasts(a_verdict(category=Category.STORAGE), 4))

    assert decided(bug(fingerprint=""), history=history, settings=PATIENT).action is Action.RESTART


def test_preemption_is_free_and_the_time_limit_is_not() -> None:
    assert decided(preempted(), state="PREEMPTED", history=pasts(preempted(), 200)).action is Action.RESTART
    timeout = a_verdict(category=Category.SCHEDULER, cause="time_limit")
    assert decided(timeout, state="TIMEOUT", history=pasts(timeout, 3), settings=PATIENT).rule == "budget"


def test_preemptions_do_not_use_up_the_budget_of_other_failures() -> None:
    assert decided(bug(), history=pasts(preempted(), 40)).action is Action.RESTART
    assert decided(UNKNOWN, history=(*pasts(preempted(), 40), *pasts(UNKNOWN, 1))).action is Action.RESTART


def test_a_new_checkpoint_refills_the_budget() -> None:
    history = pasts(bug(), 1, checkpoint=100)

    assert decided(bug(), history=history, checkpoint=200).action is Action.RESTART
    assert decided(bug(), history=history, checkpoint=100).action is Action.STOP


def test_a_checkpoint_that_an_earlier_attempt_had_already_passed_refills_nothing() -> None:
    history = (past(0, UNKNOWN, checkpoint=500), *(past(n, UNKNOWN, checkpoint=None) for n in (1, 2)))

    assert decided(UNKNOWN, history=history, checkpoint=400).action is Action.STOP
    assert decided(UNKNOWN, history=history, checkpoint=501).action is Action.RESTART


def test_a_budget_of_none_is_no_limit_and_one_of_zero_no_restart() -> None:
    settings = PolicySettings(budgets=Budgets(unknown=None, user_code=0))

    assert decided(UNKNOWN, history=pasts(UNKNOWN, 100), settings=settings).action is Action.RESTART
    assert decided(bug(), settings=settings).rule == "budget"


# --- no progress ------------------------------------------------------------------------------------------------------


def test_three_attempts_in_a_row_without_a_new_checkpoint_are_enough() -> None:
    two, three = pasts(gpu("node01"), 1), pasts(gpu("node01"), 2)

    assert decided(gpu("node02"), history=two).action is Action.RESTART_EXCLUDE
    stopped = decided(gpu("node03"), history=three)
    assert (stopped.action, stopped.rule) == (Action.STOP, "no_new_checkpoint")
    assert "3 attempts in a row" in stopped.reason


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_number_of_attempts_without_a_new_checkpoint_is_the_operators_choice(limit: int) -> None:
    settings = PolicySettings(max_attempts_without_checkpoint=limit)

    assert decided(gpu(), history=pasts(gpu(), limit - 1), settings=settings).rule == "no_new_checkpoint"
    assert limit == 1 or decided(gpu(), history=pasts(gpu(), limit - 2), settings=settings).rule != "no_new_checkpoint"


def test_the_attempt_that_made_the_checkpoint_is_not_one_without() -> None:
    history = (past(0, gpu(), checkpoint=100), past(1, gpu(), checkpoint=None))

    assert decided(gpu(), history=history).action is Action.RESTART
    assert decided(gpu(), history=(*history, past(2, gpu(), checkpoint=50))).rule == "no_new_checkpoint"


def test_preemptions_are_not_counted_as_attempts_without_progress() -> None:
    assert decided(gpu(), history=(past(0, gpu()), *pasts(preempted(), 30))).action is Action.RESTART
    assert decided(preempted(), history=pasts(gpu(), 9)).action is Action.RESTART


# --- the same failure again -------------------------------------------------------------------------------------------


def test_a_users_error_is_tried_once_more_and_stops_when_it_comes_back_at_the_same_place() -> None:
    assert decided(bug()).action is Action.RESTART
    again = decided(bug(), history=pasts(bug(), 1), settings=PATIENT)
    assert (again.action, again.rule) == (Action.STOP, "same_failure_again")


def test_another_place_is_another_failure() -> None:
    many = PolicySettings(budgets=Budgets(user_code=5), max_attempts_without_checkpoint=9)

    assert decided(bug(fingerprint="other"), history=pasts(bug(), 1), settings=many).action is Action.RESTART
    assert decided(bug(fingerprint=""), history=pasts(bug(fingerprint=""), 1), settings=many).action is Action.RESTART


def test_the_same_failure_with_progress_in_between_is_no_proof() -> None:
    history = pasts(bug(), 1, checkpoint=100)

    assert decided(bug(), history=history, checkpoint=110).action is Action.RESTART


def test_a_hardware_failure_at_the_same_place_is_not_the_users() -> None:
    lost = gpu("node01", fingerprint="x")

    assert decided(lost, history=pasts(lost, 1)).action is Action.RESTART_EXCLUDE


# --- exclusions -------------------------------------------------------------------------------------------------------


def test_a_named_culprit_is_kept_off_beside_the_earlier_ones() -> None:
    decision = decided(gpu("node03"), exclusions=(an_exclusion("node01"), an_exclusion("node02", hours=None)))

    assert (decision.action, decision.rule) == (Action.RESTART_EXCLUDE, "culprit_named")
    assert decision.exclude == ("node01", "node02", "node03")


def test_a_restart_without_a_culprit_keeps_the_earlier_exclusions() -> None:
    decision = decided(UNKNOWN, exclusions=(an_exclusion("node01"),))

    assert (decision.action, decision.exclude) == (Action.RESTART, ("node01",))


def test_a_guess_excludes_nobody() -> None:
    decision = decided(gpu("node03", confidence=Confidence.GUESS), exclusions=(an_exclusion("node03"),))

    assert (decision.action, decision.rule) == (Action.RESTART, "lean_to_restart")
    assert decided(gpu("node03", confidence=Confidence.LIKELY)).exclude == ("node03",)


def test_culprits_are_kept_off_only_where_the_verdict_calls_for_it() -> None:
    assert decided(a_verdict(culprits=("node03",), suggested=Action.RESTART)).exclude == ()


def test_an_exclusion_that_has_expired_is_not_repeated() -> None:
    decision = decided(UNKNOWN, exclusions=(an_exclusion("node01", hours=-1), an_exclusion("node02", hours=0)))

    assert decision.exclude == ()


def test_no_more_nodes_are_kept_off_than_allowed_and_the_newest_stay() -> None:
    earlier = tuple(an_exclusion(f"node{n:02}") for n in range(1, 5))

    assert decided(gpu("node09"), exclusions=earlier).exclude == ("node02", "node03", "node04", "node09")
    assert decided(gpu("node09"), settings=PolicySettings(max_exclusions=0)).exclude == ()


def test_a_node_that_is_named_again_counts_as_the_newest() -> None:
    decision = decided(
        gpu("node01"),
        exclusions=(an_exclusion("node01"), an_exclusion("node02")),
        settings=PolicySettings(max_exclusions=1),
    )

    assert decision.exclude == ("node01",)


def test_what_the_user_excludes_is_not_repeated_as_ours() -> None:
    decision = decided(gpu("node02", "node03"), user_excluded=("node02",))

    assert decision.exclude == ("node03",)


def test_the_oldest_exclusions_are_given_up_where_too_few_nodes_would_be_left() -> None:
    usable = frozenset(f"node{n:02}" for n in range(1, 7))
    earlier = (an_exclusion("node01"), an_exclusion("node02"))

    decision = decided(gpu("node03"), exclusions=earlier, usable_nodes=usable, nodes=4)

    assert decision.exclude == ("node02", "node03")
    assert "node01 may be used again" in decision.reason


def test_the_users_own_exclusions_count_when_it_is_asked_whether_enough_nodes_are_left() -> None:
    usable = frozenset(f"node{n:02}" for n in range(1, 6))

    assert decided(gpu("node03"), usable_nodes=usable, user_excluded=("node05",), nodes=4).exclude == ()
    assert decided(gpu("node03"), usable_nodes=usable, nodes=4).exclude == ("node03",)


def test_where_the_nodes_are_not_known_no_exclusion_is_given_up() -> None:
    assert decided(gpu("node03"), usable_nodes=None, nodes=400).exclude == ("node03",)


def test_slurms_delay_is_cleared_unless_the_operator_keeps_it() -> None:
    assert not decided(UNKNOWN).keep_delay
    assert decided(UNKNOWN, settings=PolicySettings(clear_requeue_delay=False)).keep_delay
