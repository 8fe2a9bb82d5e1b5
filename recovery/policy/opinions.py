"""What a service's second opinion counts for in a decision: nodes where we name none for sure, and a stop.

A service may be late, wrong or lying. So it only adds to what relight says itself, inside all other limits. It
withdraws nothing, and ends no run of which relight has established that the program is not at fault.
"""

from __future__ import annotations

from recovery.model import Action, Category, Confidence
from recovery.opinion import Hint
from recovery.policy.settings import PolicySettings
from recovery.policy.situation import PastAttempt, Situation

SERVICE_STOP = "service_stop"
"""The rule that follows a service's stop."""
NOT_THE_PROGRAMS = (
    Category.HARDWARE_GPU,
    Category.HARDWARE_NETWORK,
    Category.HOST,
    Category.STORAGE,
    Category.SCHEDULER,
    Category.INFRA_TRANSIENT,
)


def weighed(situation: Situation, settings: PolicySettings) -> Situation:
    """Return `situation` with a verdict that names the nodes which the service blames, where ours names none for sure.

    More nodes than may be excluded at all are no place.
    """
    opinion, verdict = situation.opinion, situation.verdict
    if opinion is None or opinion.confidence is Confidence.GUESS or opinion.hint is Hint.CONTINUE:
        return situation
    located = verdict.culprits and verdict.confidence is not Confidence.GUESS
    restarts = verdict.suggested in (Action.RESTART, Action.RESTART_EXCLUDE)
    if located or not restarts or not 0 < len(opinion.nodes) <= settings.max_exclusions:
        return situation
    blamed = f"{opinion.says} blames {', '.join(opinion.nodes)}"
    refined = verdict.model_copy(
        update={
            "culprits": opinion.nodes,
            "victims": tuple(node for node in verdict.victims if node not in opinion.nodes),
            "confidence": Confidence.LIKELY,
            "suggested": Action.RESTART_EXCLUDE,
            "summary": f"{verdict.summary.rstrip('.')}; {blamed}" if verdict.summary else blamed,
            "says": f"{verdict.says}, {opinion.says}",
        }
    )
    return situation.model_copy(update={"verdict": refined})


def stop_of(situation: Situation) -> str:
    """Return why a service's stop is to be followed; empty where there is none, or it is not to be.

    One that came after its attempt had been restarted counts once that failure is back.
    """
    verdict = situation.verdict
    established = verdict.confidence is Confidence.ESTABLISHED and verdict.category in NOT_THE_PROGRAMS
    if established or situation.made_new_checkpoint:
        return ""
    opinion = situation.opinion
    if opinion is not None and opinion.says_stop:
        return f"{opinion.says} says stop: {opinion.text}" if opinion.text else f"{opinion.says} says stop"
    before = situation.past[-1] if situation.past else None
    if before is not None and before.stop_said_by and _same_failure(before, situation):
        return f"{before.stop_said_by} said stop of attempt {before.attempt}, too late, and that failure is back"
    return ""


def _same_failure(before: PastAttempt, situation: Situation) -> bool:
    verdict = situation.verdict
    if before.fingerprint or verdict.fingerprint:
        return before.fingerprint == verdict.fingerprint
    return (before.category, before.cause) == (verdict.category, verdict.cause)
