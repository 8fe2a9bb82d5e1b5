"""What holds of every decision, whatever the history."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from recovery.model import Action, Category, Confidence, Exclusion, SymptomKind, Verdict
from recovery.optin import OptIn
from recovery.policy import Budgets, PastAttempt, PolicySettings, Situation, decide
from tests.unit.situations import NOW, a_situation

NODES = tuple(f"node{n:02}" for n in range(1, 9))
RESTARTS = (Action.RESTART, Action.RESTART_EXCLUDE)

some_nodes = st.lists(st.sampled_from(NODES), unique=True, max_size=6).map(tuple)
checkpoints = st.none() | st.integers(0, 500)
fingerprints = st.sampled_from(["", "a", "b"])
causes = st.sampled_from(["preemption", "time_limit", "gpu_fallen_off_bus", "key_error", ""])
verdicts = st.builds(
    Verdict,
    symptom=st.sampled_from(SymptomKind),
    category=st.sampled_from(Category),
    cause=causes,
    culprits=some_nodes,
    confidence=st.sampled_from(Confidence),
    suggested=st.sampled_from(Action),
    summary=st.sampled_from(["", "what happened"]),
    fingerprint=fingerprints,
)
pasts = st.builds(
    PastAttempt,
    attempt=st.just(0),
    category=st.sampled_from(Category),
    cause=causes,
    fingerprint=fingerprints,
    action=st.sampled_from(Action),
    checkpoint=checkpoints,
)
exclusions = st.builds(
    Exclusion,
    node=st.sampled_from(NODES),
    by=st.just("policy"),
    reason=st.just("earlier"),
    since=st.just(NOW),
    until=st.none() | st.integers(-2, 2).map(lambda hours: NOW + timedelta(hours=hours)),
)
budgets = st.builds(Budgets, **{name: st.none() | st.integers(0, 4) for name in Budgets.model_fields})
limits = st.builds(
    PolicySettings,
    budgets=budgets,
    max_attempts_without_checkpoint=st.integers(1, 5),
    max_exclusions=st.integers(0, 5),
    clear_requeue_delay=st.booleans(),
)
situations = st.builds(
    a_situation,
    verdict=verdicts,
    state=st.sampled_from(
        ["FAILED", "RUNNING", "SUSPENDED", "CANCELLED", "COMPLETED", "NODE_FAIL", "PREEMPTED", "TIMEOUT", "REQUEUED"]
    ),
    checkpoint=checkpoints,
    history=st.lists(pasts, max_size=8).map(tuple),
    nodes=st.integers(1, 8),
    optin=st.builds(OptIn, max_restarts=st.none() | st.integers(0, 5)),
    exit_code=st.sampled_from([0, 1, 93]),
    requeued=st.booleans(),
    exclusions=st.lists(exclusions, max_size=5).map(tuple),
    usable_nodes=st.none() | st.frozensets(st.sampled_from(NODES)),
    user_excluded=some_nodes,
)


@given(situations, limits)
def test_the_same_situation_gives_the_same_bytes(situation: Situation, settings: PolicySettings) -> None:
    told = situation.model_dump_json()
    first = decide(situation, settings).model_dump_json()

    assert decide(Situation.model_validate_json(told), settings).model_dump_json() == first
    assert decide(situation, PolicySettings.model_validate_json(settings.model_dump_json())).model_dump_json() == first
    assert situation.model_dump_json() == told, "what was decided from is as it was"


@given(situations, limits)
def test_what_ended_as_it_was_wanted_is_never_acted_on(situation: Situation, settings: PolicySettings) -> None:
    if situation.ending.state in ("CANCELLED", "COMPLETED"):
        assert decide(situation, settings).action is Action.NONE


@given(situations, limits)
def test_no_node_is_kept_off_that_no_evidence_named(situation: Situation, settings: PolicySettings) -> None:
    decision = decide(situation, settings)
    verdict = situation.verdict
    sure = verdict.suggested is Action.RESTART_EXCLUDE and verdict.confidence is not Confidence.GUESS
    named = set(verdict.culprits) if sure else set()
    held = {e.node for e in situation.exclusions if e.until is None or e.until > situation.now}

    assert set(decision.exclude) <= named | held
    assert not set(decision.exclude) & set(situation.user_excluded)
    assert len(decision.exclude) == len(set(decision.exclude)) <= settings.max_exclusions
    if decision.action is Action.RESTART_EXCLUDE:
        assert named & set(decision.exclude)
    if decision.action not in RESTARTS:
        assert decision.exclude == ()


@given(situations, limits)
def test_our_exclusions_alone_never_keep_a_job_from_starting(situation: Situation, settings: PolicySettings) -> None:
    decision = decide(situation, settings)
    if situation.usable_nodes is None:
        return
    could_start = situation.usable_nodes - set(situation.user_excluded)
    if len(could_start) >= situation.ending.node_count:
        assert len(could_start - set(decision.exclude)) >= situation.ending.node_count


@given(situations, limits)
def test_a_stop_always_tells_which_limit_or_whose_word_it_keeps(situation: Situation, settings: PolicySettings) -> None:
    decision = decide(situation, settings)

    assert decision.reason
    if decision.action is Action.STOP:
        assert decision.rule in ("exit_code", "job_cap", "same_failure_again", "no_new_checkpoint", "budget")


@given(situations, limits)
def test_a_stricter_comment_never_leads_to_more(situation: Situation, settings: PolicySettings) -> None:
    capped = situation.model_copy(update={"optin": OptIn(max_restarts=0)})
    requeued = situation.ending.requeued

    if not requeued and decide(situation, settings).action not in RESTARTS:
        assert decide(capped, settings).action not in RESTARTS
    assert requeued or decide(capped, settings).action not in RESTARTS


def restarts_until_the_stop(
    failures: list[Verdict], settings: PolicySettings, reached: list[int | None]
) -> tuple[int, Action]:
    """Play the attempts of one job: each ends with the next of `failures`, and its checkpoints as `reached` says."""
    history: tuple[PastAttempt, ...] = ()
    for number, (verdict, checkpoint) in enumerate(zip(failures, reached, strict=True)):
        decision = decide(a_situation(verdict, history=history, checkpoint=checkpoint), settings)
        if decision.action not in RESTARTS:
            return number, decision.action
        ended = PastAttempt(
            attempt=number,
            category=verdict.category,
            cause=verdict.cause,
            fingerprint=verdict.fingerprint,
            action=decision.action,
            checkpoint=checkpoint,
        )
        history = (*history, ended)
    return len(failures), Action.RESTART


not_free = verdicts.filter(lambda verdict: verdict.cause != "preemption")


@given(st.lists(not_free, min_size=8, max_size=8), checkpoints)
def test_a_job_that_makes_no_new_checkpoint_is_stopped_after_three_attempts_whatever_befalls_it(
    failures: list[Verdict], old: int | None
) -> None:
    restarts, last = restarts_until_the_stop(failures, PolicySettings(), [old] * len(failures))

    # The attempt that made the old checkpoint is not one of the three.
    assert restarts <= 3
    assert last is Action.STOP


@given(st.lists(not_free, min_size=10, max_size=10), st.integers(1, 6))
def test_the_number_of_restarts_without_a_new_checkpoint_is_bounded_by_the_operators_limit(
    failures: list[Verdict], limit: int
) -> None:
    settings = PolicySettings(max_attempts_without_checkpoint=limit)
    restarts, last = restarts_until_the_stop(failures, settings, [None] * len(failures))

    assert restarts <= limit - 1
    assert last is Action.STOP


@given(st.lists(st.tuples(not_free, st.integers(0, 3)), min_size=8, max_size=8))
def test_preemptions_in_between_are_free_and_hide_no_failure(failures: list[tuple[Verdict, int]]) -> None:
    preemption = Verdict(symptom=SymptomKind.CRASH, category=Category.SCHEDULER, cause="preemption")
    mixed = [verdict for failure, before in failures for verdict in [*[preemption] * before, failure]]

    restarts, last = restarts_until_the_stop(mixed, PolicySettings(), [None] * len(mixed))

    counted = [verdict for verdict in mixed[:restarts] if verdict.cause != "preemption"]
    assert len(counted) <= 2
    assert last is Action.STOP
    assert mixed[restarts].cause != "preemption", "a preemption never stops a job"


@given(st.lists(verdicts, min_size=10, max_size=10))
def test_a_job_that_makes_progress_each_time_is_never_stopped(failures: list[Verdict]) -> None:
    failures = [verdict for verdict in failures if verdict.suggested is not Action.NONE]

    restarts, last = restarts_until_the_stop(failures, PolicySettings(), list(range(1, len(failures) + 1)))

    assert (restarts, last) == (len(failures), Action.RESTART)
