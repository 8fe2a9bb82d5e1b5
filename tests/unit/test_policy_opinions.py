"""What a service's opinion may change in a decision, and what it never may."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.model import Action, Category, Confidence, Verdict
from recovery.opinion import Hint, Opinion
from recovery.policy import PolicySettings, Situation, decide
from tests.unit.situations import NOW, a_situation, a_verdict, bug, gpu, past, pasts
from tests.unit.test_policy_properties import limits, situations

SETTINGS = PolicySettings()
UNKNOWN = a_verdict(confidence=Confidence.GUESS, fingerprint="")
RESTARTS = (Action.RESTART, Action.RESTART_EXCLUDE)

opinions = st.builds(
    Opinion,
    says=st.just("ours"),
    hint=st.sampled_from(Hint),
    nodes=st.lists(st.sampled_from([f"node{n:02d}" for n in range(1, 9)]), unique=True, max_size=6).map(tuple),
    confidence=st.sampled_from(Confidence),
    received_at=st.just(NOW),
)


def says(hint: Hint, *nodes: str, **told: Any) -> Opinion:
    return Opinion(says="ours", hint=hint, nodes=nodes, received_at=NOW, **told)


def test_a_stop_makes_a_stop_of_a_restart() -> None:
    assert decide(a_situation(UNKNOWN), SETTINGS).action is Action.RESTART
    decision = decide(a_situation(UNKNOWN, opinion=says(Hint.STOP, text="the data set is gone")), SETTINGS)
    assert (decision.action, decision.rule) == (Action.STOP, "service_stop")
    assert decision.reason == "ours says stop: the data set is gone"


@pytest.mark.parametrize("hint", [hint for hint in Hint if hint is not Hint.STOP])
def test_no_other_hint_is_a_stop(hint: Hint) -> None:
    assert decide(a_situation(UNKNOWN, opinion=says(hint)), SETTINGS).action is Action.RESTART


def test_a_guessed_stop_is_none() -> None:
    guess = says(Hint.STOP, confidence=Confidence.GUESS)
    assert decide(a_situation(UNKNOWN, opinion=guess), SETTINGS).action is Action.RESTART


def test_an_attempt_that_made_a_new_checkpoint_is_not_stopped() -> None:
    assert decide(a_situation(UNKNOWN, checkpoint=10, opinion=says(Hint.STOP)), SETTINGS).action is Action.RESTART


@pytest.mark.parametrize(
    "verdict",
    [
        gpu("node02"),
        a_verdict(category=Category.STORAGE),
        a_verdict(category=Category.SCHEDULER, cause="preemption"),
        a_verdict(category=Category.INFRA_TRANSIENT),
    ],
    ids=lambda verdict: verdict.category.value,
)
def test_what_is_established_not_to_be_the_programs_fault_is_not_stopped(verdict: Verdict) -> None:
    assert decide(a_situation(verdict, opinion=says(Hint.STOP)), SETTINGS).action in RESTARTS
    likely = verdict.model_copy(update={"confidence": Confidence.LIKELY})
    assert decide(a_situation(likely, opinion=says(Hint.STOP)), SETTINGS).action is Action.STOP


def test_nodes_are_kept_off_where_the_verdict_names_none_for_sure() -> None:
    decision = decide(a_situation(UNKNOWN, opinion=says(Hint.RESTART, "node03")), SETTINGS)
    assert (decision.action, decision.exclude) == (Action.RESTART_EXCLUDE, ("node03",))
    assert decision.reason == "what happened; ours blames node03"


@pytest.mark.parametrize(
    "opinion",
    [
        says(Hint.RESTART, *(f"node{n:02d}" for n in range(1, 6))),
        says(Hint.CONTINUE, "node03"),
        says(Hint.RESTART, "node03", confidence=Confidence.GUESS),
    ],
    ids=["more than may be excluded", "no failure", "a guess"],
)
def test_who_blames_too_many_sees_no_failure_or_guesses_keeps_no_node_off(opinion: Opinion) -> None:
    assert decide(a_situation(UNKNOWN, opinion=opinion), SETTINGS).exclude == ()


def test_a_culprit_that_evidence_names_is_not_joined_by_others() -> None:
    decision = decide(a_situation(gpu("node02"), opinion=says(Hint.RESTART, "node03")), SETTINGS)
    assert decision.exclude == ("node02",)


def test_the_job_can_still_start_whatever_a_service_blames() -> None:
    opinion, usable = says(Hint.RESTART, "node02", "node03"), frozenset({"node01", "node02", "node03"})
    decision = decide(a_situation(UNKNOWN, nodes=2, opinion=opinion, usable_nodes=usable), SETTINGS)
    assert decision.exclude == ("node03",)
    assert "may be used again" in decision.reason


def test_a_users_error_is_no_reason_to_keep_nodes_off() -> None:
    assert decide(a_situation(bug(), opinion=says(Hint.RESTART, "node03")), SETTINGS).exclude == ()


def test_a_stop_that_came_too_late_counts_once_that_failure_is_back() -> None:
    warned = past(0, UNKNOWN).model_copy(update={"stop_said_by": "ours"})
    decision = decide(a_situation(UNKNOWN, history=(warned,)), SETTINGS)
    assert (decision.action, decision.rule) == (Action.STOP, "service_stop")
    assert decision.reason == "ours said stop of attempt 0, too late, and that failure is back"


@pytest.mark.parametrize(
    ("verdict", "checkpoint"),
    [(gpu("node02"), None), (a_verdict(category=Category.STORAGE, confidence=Confidence.LIKELY), None), (UNKNOWN, 10)],
    ids=["a broken node", "another failure", "a new checkpoint"],
)
def test_a_stop_that_came_too_late_is_of_that_failure_only(verdict: Verdict, checkpoint: int | None) -> None:
    warned = past(0, UNKNOWN).model_copy(update={"stop_said_by": "ours"})
    assert decide(a_situation(verdict, checkpoint=checkpoint, history=(warned,)), SETTINGS).action in RESTARTS


def test_it_is_of_the_last_attempt_only() -> None:
    first, second = pasts(UNKNOWN, 2)
    warned = first.model_copy(update={"stop_said_by": "ours"})
    settings = PolicySettings(max_attempts_without_checkpoint=9)
    assert decide(a_situation(UNKNOWN, history=(warned, second)), settings).action is Action.RESTART


@given(situations, limits, opinions)
def test_an_opinion_only_adds_blamed_nodes_or_makes_a_stop_of_a_restart(
    situation: Situation, settings: PolicySettings, opinion: Opinion
) -> None:
    without = decide(situation, settings)
    decision = decide(situation.model_copy(update={"opinion": opinion}), settings)
    if decision == without:
        return
    assert without.action in RESTARTS
    if decision.action is Action.STOP:
        assert decision.rule == "service_stop"
        assert opinion.says_stop
        assert not situation.made_new_checkpoint
    else:
        assert decision.action in RESTARTS
        held = {exclusion.node for exclusion in situation.exclusions}
        assert set(decision.exclude) <= set(opinion.nodes) | held
        assert len(decision.exclude) <= settings.max_exclusions
