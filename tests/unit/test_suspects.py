"""Nodes under suspicion across jobs: what is remembered of failed jobs, and what a decision makes of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.model import Action, Category, Confidence, Verdict
from recovery.policy import PastAttempt, PolicySettings, Situation, decide
from recovery.suspects import (
    FORGET_AFTER,
    KEPT_SUSPICIONS,
    MAX_NODES,
    SuspectLedger,
    SuspectSettings,
    Suspicion,
    program_of,
    suspects,
    weights_against,
)
from tests.unit.situations import NOW, a_situation, a_verdict, an_exclusion, bug, gpu, past
from tests.unit.test_policy_properties import NODES, limits, situations

SETTINGS = PolicySettings()
UNLOCATED = a_verdict(category=Category.HARDWARE_NETWORK, confidence=Confidence.LIKELY)
ALLOCATION = ("node01", "node02", "node03", "node04")


def against(node: str, *jobs: str, weight: float = 1.0, hours_ago: float = 1.0) -> tuple[Suspicion, ...]:
    """What `jobs` say against `node`."""
    at = NOW - timedelta(hours=hours_ago)
    return tuple(Suspicion(node=node, job=f"alpha/{job}", weight=weight, at=at) for job in jobs)


# --- what a failure says against nodes ---------------------------------------------------------------------------


def test_a_failure_speaks_against_its_culprits_as_surely_as_they_are_known() -> None:
    assert weights_against(gpu("node02"), ALLOCATION) == {"node02": 1.0}
    assert weights_against(gpu("node02", confidence=Confidence.LIKELY), ALLOCATION) == {"node02": 0.5}


def test_a_machines_failure_that_could_not_be_located_speaks_against_each_node_a_little() -> None:
    assert weights_against(UNLOCATED, ALLOCATION) == dict.fromkeys(ALLOCATION, 0.25)
    assert weights_against(UNLOCATED, ("node01",)) == {"node01": 0.5}


NOBODYS = [bug(), a_verdict(), a_verdict(category=Category.SCHEDULER), bug(culprits=("node02",))]


@pytest.mark.parametrize("verdict", NOBODYS)
def test_the_programs_own_failure_and_an_unknown_one_speak_against_nobody(verdict: Verdict) -> None:
    assert weights_against(verdict, ALLOCATION) == {}


def test_a_failure_of_many_nodes_is_no_place() -> None:
    many = tuple(f"n{number}" for number in range(MAX_NODES + 1))
    assert weights_against(UNLOCATED, many) == {}
    assert weights_against(gpu(*many), many) == {}


# --- what is remembered ------------------------------------------------------------------------------------------


def test_each_job_counts_once_however_often_it_fails() -> None:
    ledger = SuspectLedger()
    for _ in range(5):
        ledger = ledger.with_failure("alpha/1", {"node02": 1.0}, NOW)
    assert suspects(ledger.fresh(NOW), SuspectSettings(), NOW) == ()

    ledger = ledger.with_failure("alpha/2", {"node02": 1.0}, NOW)

    [suspect] = suspects(ledger.fresh(NOW), SuspectSettings(), NOW)
    assert (suspect.node, suspect.score, suspect.jobs) == ("node02", 2.0, ("alpha/1", "alpha/2"))


def test_the_tasks_of_an_array_are_one_program() -> None:
    assert program_of("alpha/7_3", "7") == program_of("alpha/7_4", "7") == "alpha/7"
    assert program_of("alpha/8", "") == "alpha/8"


def test_suspicion_fades() -> None:
    told = against("node02", "1", "2", hours_ago=0)
    at = [suspects(told, SuspectSettings(), NOW + timedelta(hours=hours)) for hours in (0, 2, 3)]
    assert [len(found) for found in at] == [1, 1, 0]
    assert SuspectLedger(suspicions=told).fresh(NOW + FORGET_AFTER) == ()


def test_no_score_means_no_suspects() -> None:
    assert suspects(against("node02", "1", "2", "3"), SuspectSettings(score=None), NOW) == ()


tellings = st.lists(
    st.tuples(
        st.integers(1, 900).map(lambda number: f"alpha/{number}"),
        st.dictionaries(st.sampled_from(NODES), st.floats(0.01, 1.0), max_size=MAX_NODES),
        st.integers(0, 100_000).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    ),
    max_size=60,
)


@given(tellings)
def test_memory_is_bounded_and_has_one_word_of_each_job_on_a_node(
    told: list[tuple[str, dict[str, float], datetime]],
) -> None:
    ledger = SuspectLedger()
    for job, weights, at in sorted(told, key=lambda telling: telling[2]):
        ledger = ledger.with_failure(job, weights, at)
    pairs = [(each.node, each.job) for each in ledger.suspicions]
    assert len(pairs) == len(set(pairs)) <= KEPT_SUSPICIONS


# --- what a decision makes of it ---------------------------------------------------------------------------------


def test_a_failure_that_could_not_be_located_is_kept_off_a_suspect() -> None:
    decision = decide(a_situation(UNLOCATED, suspicions=against("node02", "12", "15")), SETTINGS)

    assert (decision.action, decision.rule) == (Action.RESTART_EXCLUDE, "suspect_node")
    assert decision.exclude == ("node02",)
    assert decision.reason == "what happened; node02 is under suspicion by jobs 12, 15"


def test_one_job_makes_no_suspect() -> None:
    decision = decide(a_situation(UNLOCATED, suspicions=against("node02", "12")), SETTINGS)
    assert (decision.action, decision.exclude) == (Action.RESTART, ())


def test_a_named_culprit_leaves_no_room_for_suspicion() -> None:
    decision = decide(a_situation(gpu("node03"), suspicions=against("node02", "12", "15")), SETTINGS)
    assert (decision.rule, decision.exclude) == ("culprit_named", ("node03",))


@pytest.mark.parametrize("verdict", [bug(), a_verdict(category=Category.STORAGE), a_verdict(category=Category.DATA)])
def test_what_lies_on_no_node_is_never_laid_on_a_suspect(verdict: Verdict) -> None:
    assert decide(a_situation(verdict, suspicions=against("node02", "12", "15")), SETTINGS).exclude == ()


def test_more_suspects_than_may_be_excluded_are_no_place() -> None:
    all_of_them = tuple(each for node in NODES[:5] for each in against(node, "12", "15"))
    assert decide(a_situation(UNLOCATED, suspicions=all_of_them), SETTINGS).exclude == ()


def test_a_suspect_is_used_where_too_few_nodes_would_be_left() -> None:
    situation = a_situation(UNLOCATED, suspicions=against("node02", "12", "15"), usable_nodes=frozenset(ALLOCATION))
    decision = decide(situation, SETTINGS)
    assert (decision.action, decision.rule, decision.exclude) == (Action.RESTART, "lean_to_restart", ())


some_suspicions = st.lists(
    st.builds(
        Suspicion,
        node=st.sampled_from(NODES),
        job=st.sampled_from(["alpha/1", "alpha/2", "alpha/3"]),
        weight=st.sampled_from([0.25, 0.5, 1.0]),
        at=st.integers(0, 23).map(lambda hours: NOW - timedelta(hours=hours)),
    ),
    max_size=12,
).map(tuple)


@given(situations, limits, some_suspicions)
def test_suspicion_makes_no_restart_of_anything_else_and_no_stop(
    situation: Situation, settings: PolicySettings, told: tuple[Suspicion, ...]
) -> None:
    restarts = (Action.RESTART, Action.RESTART_EXCLUDE)
    without, with_it = decide(situation, settings), decide(situation.model_copy(update={"suspicions": told}), settings)

    assert (without.action in restarts) == (with_it.action in restarts)
    if without.action not in restarts or without.rule == "culprit_named":
        assert with_it == without
    suspected = {suspect.node for suspect in suspects(told, settings.suspects, situation.now)}
    assert set(with_it.exclude) - suspected <= set(without.exclude)


def test_a_suspicion_is_given_up_before_an_exclusion_that_evidence_named() -> None:
    known = (an_exclusion("node01"),)
    usable = frozenset({"node01", "node02", "node03", "node04", "node05"})
    told = against("node02", "12", "15")

    decision = decide(a_situation(UNLOCATED, suspicions=told, exclusions=known, usable_nodes=usable), SETTINGS)

    assert decision.exclude == ("node01",)


# --- the job's own attempts --------------------------------------------------------------------------------------


def on(*nodes: str, attempt: int = 0, verdict: Verdict = UNLOCATED) -> PastAttempt:
    """An attempt on `nodes` that failed and was restarted with no node excluded."""
    return past(attempt, verdict).model_copy(update={"nodes": nodes})


def test_a_node_on_which_a_job_failed_again_and_again_is_tried_no_more() -> None:
    decision = decide(a_situation(UNLOCATED, history=(on("node02"),), nodes=1, ran_on=("node02",)), SETTINGS)

    assert (decision.action, decision.rule) == (Action.RESTART_EXCLUDE, "same_node_again")
    assert decision.exclude == ("node02",)
    assert decision.reason == "what happened; node02 was in each attempt that failed so"


def test_the_one_node_that_changing_allocations_have_in_common_stands_out() -> None:
    history = (on("node02", "node03"),)
    decision = decide(a_situation(UNLOCATED, history=history, nodes=2, ran_on=("node02", "node04")), SETTINGS)
    assert decision.exclude == ("node02",)


@pytest.mark.parametrize(
    ("verdict", "history", "ran_on"),
    [
        (UNLOCATED, (), ("node02",)),
        (UNLOCATED, (on("node01", "node02"),), ("node01", "node02")),
        (UNLOCATED, (on("node01"),), ("node02",)),
        (UNLOCATED, (on(),), ("node02",)),
        (UNLOCATED, (on("node02", verdict=a_verdict(category=Category.STORAGE)),), ("node02",)),
        (a_verdict(category=Category.STORAGE), (on("node02"),), ("node02",)),
        (bug(), (on("node02", verdict=bug(fingerprint="another")),), ("node02",)),
    ],
)
def test_without_one_node_in_common_or_where_it_lies_on_no_node_nothing_is_excluded(
    verdict: Verdict, history: tuple[PastAttempt, ...], ran_on: tuple[str, ...]
) -> None:
    situation = a_situation(verdict, history=history, nodes=max(1, len(ran_on)), ran_on=ran_on)
    assert decide(situation, SETTINGS).exclude == ()


def test_a_node_that_was_excluded_twice_counts_once() -> None:
    twice = (an_exclusion("node01"), an_exclusion("node01", hours=None))
    assert decide(a_situation(UNLOCATED, exclusions=twice), SETTINGS).exclude == ("node01",)
