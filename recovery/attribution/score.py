"""How good a diagnosis is: verdicts against the labels of a corpus."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.model import Action, Category, SymptomKind, Value, Verdict


class Label(Value):
    """What is true of a labelled case."""

    outcome: SymptomKind
    category: Category
    cause: str
    culpable_nodes: tuple[str, ...] = ()
    victim_nodes: tuple[str, ...] = ()
    action: Action
    accept_actions: tuple[Action, ...] = ()
    """Other actions that are right as well."""

    @property
    def right_actions(self) -> frozenset[Action]:
        """All actions that count as right."""
        return frozenset({self.action, *self.accept_actions})


class Prediction(Value):
    """What was said of a case."""

    id: str
    outcome: SymptomKind
    category: Category
    cause: str
    culpable_nodes: tuple[str, ...]
    victim_nodes: tuple[str, ...]
    action: Action

    @classmethod
    def of(cls, case_id: str, verdict: Verdict) -> Prediction:
        """Return a verdict as a prediction."""
        return cls(
            id=case_id,
            outcome=verdict.symptom,
            category=verdict.category,
            cause=verdict.cause,
            culpable_nodes=verdict.culprits,
            victim_nodes=verdict.victims,
            action=verdict.suggested,
        )


class Mistakes(Value):
    """The ids of the cases with each kind of mistake."""

    outcome: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    wrong_exclusions: tuple[str, ...] = ()
    """A node is to be excluded that is not at fault."""
    missed_culprits: tuple[str, ...] = ()
    false_alarms: tuple[str, ...] = ()
    """A healthy job is not left alone."""
    false_stops: tuple[str, ...] = ()
    """A job is stopped that another try would have saved."""
    missed_stops: tuple[str, ...] = ()


class Score(Value):
    """The figures over all cases; ratios are of cases, or of named nodes."""

    cases: int
    outcome: float
    category: float
    action: float
    all: float
    """Outcome, category, action and culprits right at once."""
    culprit_precision: float
    culprit_recall: float
    wrong: Mistakes


def score(pairs: Iterable[tuple[Label, Prediction]]) -> Score:
    """Compare predictions with labels."""
    judged = [(label, said, _mistakes(label, said)) for label, said in pairs]
    named = sum(len(set(said.culpable_nodes)) for _, said, _ in judged)
    hits = sum(len(set(said.culpable_nodes) & set(label.culpable_nodes)) for label, said, _ in judged)
    guilty = sum(len(set(label.culpable_nodes)) for label, _, _ in judged)
    wrong = {kind: tuple(said.id for _, said, mistakes in judged if kind in mistakes) for kind in Mistakes.model_fields}
    return Score(
        cases=len(judged),
        outcome=_ratio(len(judged) - len(wrong["outcome"]), len(judged)),
        category=_ratio(len(judged) - len(wrong["category"]), len(judged)),
        action=_ratio(len(judged) - len(wrong["action"]), len(judged)),
        all=_ratio(sum(_all_right(label, said, mistakes) for label, said, mistakes in judged), len(judged)),
        culprit_precision=_ratio(hits, named),
        culprit_recall=_ratio(hits, guilty),
        wrong=Mistakes.model_validate(wrong),
    )


def _mistakes(label: Label, said: Prediction) -> frozenset[str]:
    culprits, blamed, right = set(label.culpable_nodes), set(said.culpable_nodes), label.right_actions
    found = {
        "outcome": said.outcome is not label.outcome,
        "category": said.category is not label.category,
        "action": said.action not in right,
        "wrong_exclusions": said.action is Action.RESTART_EXCLUDE and bool(blamed - culprits),
        "missed_culprits": bool(culprits - blamed),
        "false_alarms": label.action is Action.NONE and said.action not in right,
        "false_stops": said.action is Action.STOP and Action.STOP not in right,
        "missed_stops": right == {Action.STOP} and said.action is not Action.STOP,
    }
    return frozenset(kind for kind, made in found.items() if made)


def _all_right(label: Label, said: Prediction, mistakes: frozenset[str]) -> bool:
    return not mistakes & {"outcome", "category", "action"} and set(label.culpable_nodes) == set(said.culpable_nodes)


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 1.0
