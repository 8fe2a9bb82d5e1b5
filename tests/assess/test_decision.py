"""The decision activity, and what becomes of a verdict where the watch knows better."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest
from temporalio.testing import ActivityEnvironment

from activities.assess import Assessor
from activities.assessment import Decided, Terms
from activities.logs.files import FileTail
from recovery.attribution.observed import as_observed
from recovery.model import Action, Category, Confidence, Evidence, JobKey, Mode, Progress, SymptomKind, Verdict
from recovery.optin import OptIn
from recovery.policy import Ending, PolicySettings, Situation, decide
from tests.watch.scripted import ScriptedScheduler

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
HARDWARE = Verdict(
    symptom=SymptomKind.CRASH,
    category=Category.HARDWARE_GPU,
    cause="gpu_fallen_off_bus",
    culprits=("node02",),
    confidence=Confidence.ESTABLISHED,
    suggested=Action.RESTART_EXCLUDE,
)
NOISE = Evidence(source="/logs/1.out", text="NCCL WARN something", line=3)
HEALTHY = Verdict(
    symptom=SymptomKind.NONE, category=Category.NONE, cause="healthy", suggested=Action.NONE, evidence=(NOISE,)
)


def situation(verdict: Verdict) -> Situation:
    return Situation(
        job=JobKey(cluster="c1", job_id="1", submitted_at=NOW),
        attempt=0,
        now=NOW,
        optin=OptIn(mode=Mode.ACT),
        ending=Ending(state="FAILED", exit_code=1, node_count=2),
        verdict=verdict,
        progress=Progress(iteration=10, checkpoint=10),
        usable_nodes=frozenset({"node01", "node03", "node04"}),
    )


@pytest.mark.parametrize("terms", [Terms(), Terms(mode=Mode.ACT, acknowledged=True, approval=True)])
async def test_a_decision_carries_the_terms_that_the_worker_has_now(terms: Terms) -> None:
    policy, logs = PolicySettings(), FileTail()
    assessor = Assessor(ScriptedScheduler(), logs, policy, terms)  # type: ignore[arg-type]
    decided: Decided = await ActivityEnvironment().run(assessor.decide, situation(HARDWARE))
    await logs.close()
    assert decided.terms == terms
    assert decided.decision == decide(situation(HARDWARE), policy)
    assert (decided.decision.action, decided.decision.exclude) == (Action.RESTART_EXCLUDE, ("node02",))


def test_terms_are_what_the_settings_say() -> None:
    policy = PolicySettings(approval=True, advice_lifetime_s=120, exclusion_hours=3)
    terms = Terms.of(policy, mode=Mode.ACT, acknowledged=True)
    assert (terms.mode, terms.acknowledged, terms.approval) == (Mode.ACT, True, True)
    assert (terms.advice_lifetime.total_seconds(), terms.exclusion_hours) == (120, 3)


@pytest.mark.parametrize(("verdict", "observed"), [*product([HARDWARE], SymptomKind), (HEALTHY, SymptomKind.NONE)])
def test_a_verdict_stands_where_it_finds_something_or_nothing_was_seen(verdict: Verdict, observed: SymptomKind) -> None:
    assert as_observed(verdict, observed) is verdict


@pytest.mark.parametrize("observed", [SymptomKind.CRASH, SymptomKind.HANG, SymptomKind.STRAGGLER])
def test_a_failure_that_the_logs_do_not_show_is_one_of_unknown_cause(observed: SymptomKind) -> None:
    verdict = as_observed(HEALTHY, observed)
    assert (verdict.symptom, verdict.category, verdict.cause) == (observed, Category.UNKNOWN, f"silent_{observed}")
    suggested = Action.WAIT if observed is SymptomKind.STRAGGLER else Action.RESTART
    assert (verdict.confidence, verdict.suggested) == (Confidence.GUESS, suggested)
    assert (verdict.culprits, verdict.victims) == ((), ())
    assert verdict.unlocated_because
    assert verdict.evidence == (NOISE,)
    assert verdict.fingerprint != as_observed(HEALTHY, _other(observed)).fingerprint


def _other(observed: SymptomKind) -> SymptomKind:
    return SymptomKind.HANG if observed is not SymptomKind.HANG else SymptomKind.CRASH
