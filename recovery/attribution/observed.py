"""Where the logs show nothing and the watch knows better."""

from __future__ import annotations

from recovery.model import Action, Category, Confidence, SymptomKind, Verdict


def as_observed(verdict: Verdict, observed: SymptomKind) -> Verdict:
    """Return `verdict`, or one of unknown cause where it finds nothing wrong although `observed` was established.

    A silent hang and a process that died without a word are failures too: nothing is known of them but that they are.
    """
    if verdict.symptom is not SymptomKind.NONE or observed is SymptomKind.NONE:
        return verdict
    return Verdict(
        symptom=observed,
        category=Category.UNKNOWN,
        cause=f"silent_{observed.value}",
        confidence=Confidence.GUESS,
        # A slow run still gets somewhere: a restart without a culprit only costs.
        suggested=Action.WAIT if observed is SymptomKind.STRAGGLER else Action.RESTART,
        summary=f"The attempt shows a {observed.value} and its logs give no cause.",
        unlocated_because="no line of the logs tells one node from the others",
        evidence=verdict.evidence,
        fingerprint=f"unknown:silent_{observed.value}",
    )
