"""`decide`: the rules in the order in which they are asked. The first that has an opinion wins.

The order leans to restarting: a missed stop costs a bounded number of retries, a false one costs a run. So a stop needs
a person's word (a cancel, exit code 93, a cap), a budget that is used up, the same failure again without progress, or a
service's word that the operator lets be heard.
"""

from __future__ import annotations

from collections.abc import Callable

from recovery.model import Action, Category, Confidence, NodeName, SymptomKind, Value
from recovery.policy.opinions import SERVICE_STOP, stop_of, weighed
from recovery.policy.settings import PolicySettings
from recovery.policy.situation import PastAttempt, Situation
from recovery.policy.suspicion import suspected


class Decision(Value):
    """What to do, why, and which rule said so. Whether it is done is for mode and approval to say."""

    action: Action
    rule: str
    reason: str
    exclude: tuple[NodeName, ...] = ()
    """All nodes that relight should keep away from the next attempt, earlier ones that still hold included."""
    keep_delay: bool = False
    """Leave Slurm's requeue delay in place: the cause needs time to pass."""


ARRAY_SYSTEMATIC = "array_systematic"
"""The rule that stops the tasks of an array: people are told of it once for all of them."""
ARRAYS_OWN = (Category.USER_CODE, Category.DATA, Category.NUMERICAL, Category.SOFTWARE_STACK)
"""What the tasks of an array share by themselves. A filesystem or a switch that fails all of them gets well again."""

Rule = Callable[[Situation, PolicySettings], Decision | None]


def decide(situation: Situation, settings: PolicySettings) -> Decision:
    """Return what to do about the attempt of `situation`. The same arguments give the same answer, for ever."""
    situation = weighed(situation, settings)
    for rule in RULES:
        decision = rule(situation, settings)
        if decision is not None:
            return decision
    return _restart(situation, settings)


def _cancelled(situation: Situation, _: PolicySettings) -> Decision | None:
    if situation.ending.state != "CANCELLED":
        return None
    by = situation.ending.cancelled_by or "its owner or an administrator"
    return Decision(action=Action.NONE, rule="cancelled", reason=f"the job was cancelled by {by}: never touched")


def _finished(situation: Situation, _: PolicySettings) -> Decision | None:
    if situation.ending.state != "COMPLETED":
        return None
    return Decision(action=Action.NONE, rule="finished", reason="the job completed")


def _healthy(situation: Situation, _: PolicySettings) -> Decision | None:
    if not situation.ending.running or situation.verdict.suggested is not Action.NONE:
        return None
    return Decision(action=Action.NONE, rule="healthy", reason="the evidence shows no failure of this attempt")


def _waits(situation: Situation, _: PolicySettings) -> Decision | None:
    if not situation.ending.running or situation.verdict.suggested is not Action.WAIT:
        return None
    return Decision(action=Action.WAIT, rule="may_pass", reason="the attempt still runs and the cause may pass")


def _requeued_by_others(situation: Situation, settings: PolicySettings) -> Decision | None:
    """Slurm or a person has requeued the job already: what is left is to keep it off a named culprit."""
    if not situation.ending.requeued:
        return None
    if _named(situation) and situation.verdict.confidence is Confidence.ESTABLISHED:
        return _restart(situation, settings)
    return Decision(action=Action.NONE, rule="requeued_by_others", reason="the job was requeued, not by relight")


def _asked_not_to(situation: Situation, settings: PolicySettings) -> Decision | None:
    if situation.ending.exit_code != settings.no_requeue_exit_code:
        return None
    reason = f"the program ended with exit code {settings.no_requeue_exit_code}: do not requeue"
    return Decision(action=Action.STOP, rule="exit_code", reason=reason)


def _job_cap(situation: Situation, _: PolicySettings) -> Decision | None:
    cap = situation.optin.max_restarts
    if cap is None or situation.restarts < cap:
        return None
    return Decision(
        action=Action.STOP, rule="job_cap", reason=f"the job's own cap of {_times(cap, 'restart')} is reached"
    )


def _array_systematic(situation: Situation, settings: PolicySettings) -> Decision | None:
    """What most tasks of an array fail with is a fault of the array: to retry each of them is a waste."""
    array, needed = situation.array, settings.array_stop.tasks
    if array is None or needed is None or situation.made_new_checkpoint or situation.verdict.category not in ARRAYS_OWN:
        return None
    if array.same < needed or array.same < settings.array_stop.fraction * array.started:
        return None
    reason = f"{array.same} of {_times(array.started, 'started task')} of the array failed in the same way"
    return Decision(action=Action.STOP, rule=ARRAY_SYSTEMATIC, reason=f"{reason}: the failure is systematic")


def _same_failure_again(situation: Situation, _: PolicySettings) -> Decision | None:
    """An error that a rerun can't recover is established once it came back at the same place without progress."""
    verdict = situation.verdict
    if verdict.suggested is not Action.STOP or not verdict.fingerprint:
        return None
    before = [past for past in _since_progress(situation) if past.fingerprint == verdict.fingerprint]
    if not before:
        return None
    reason = f"the same failure came back at the same place in attempt {situation.attempt}, without a new checkpoint"
    return Decision(action=Action.STOP, rule="same_failure_again", reason=reason)


def _no_new_checkpoint(situation: Situation, settings: PolicySettings) -> Decision | None:
    idle = _idle_attempts(situation, settings)
    verdict = situation.verdict
    if idle < settings.max_attempts_without_checkpoint or settings.budgets.of(verdict.category, verdict.cause) is None:
        return None
    return Decision(
        action=Action.STOP, rule="no_new_checkpoint", reason=f"{idle} attempts in a row ended without a new checkpoint"
    )


def _budget(situation: Situation, settings: PolicySettings) -> Decision | None:
    budgets, verdict = settings.budgets, situation.verdict
    name, budget = budgets.name_of(verdict.category, verdict.cause), budgets.of(verdict.category, verdict.cause)
    used = len([past for past in _since_progress(situation) if budgets.name_of(past.category, past.cause) == name])
    if budget is None or situation.made_new_checkpoint or used < budget:
        return None
    reason = f"the budget of {_times(budget, 'restart')} for {name} failures is used up"
    return Decision(action=Action.STOP, rule="budget", reason=reason)


def _service_stop(situation: Situation, _: PolicySettings) -> Decision | None:
    reason = stop_of(situation)
    return Decision(action=Action.STOP, rule=SERVICE_STOP, reason=reason) if reason else None


RULES: tuple[Rule, ...] = (
    _cancelled,
    _finished,
    _healthy,
    _waits,
    _requeued_by_others,
    _asked_not_to,
    _job_cap,
    _array_systematic,
    _same_failure_again,
    _no_new_checkpoint,
    _budget,
    _service_stop,
)
"""Asked in this order; when none has an opinion the job is restarted."""


def _restart(situation: Situation, settings: PolicySettings) -> Decision:
    verdict, without_evidence = situation.verdict, suspected(situation, settings)
    avoid = _named(situation) or tuple(without_evidence.why)
    exclude, dropped = _feasible(_wanted_exclusions(situation, settings, avoid), situation)
    new = [node for node in exclude if node in avoid]
    what = verdict.summary or _default_reason(verdict.symptom)
    if reasons := [says for node, says in without_evidence.why.items() if node in new]:
        what = f"{what.rstrip('.')}; {'; '.join(reasons)}"
    if dropped:
        what += f"; too few nodes would be left, so {', '.join(dropped)} may be used again"
    because = without_evidence.rule if without_evidence.why else "culprit_named"
    return Decision(
        action=Action.RESTART_EXCLUDE if new else Action.RESTART,
        rule=because if new else "lean_to_restart",
        reason=what,
        exclude=exclude,
        keep_delay=verdict.suggested is Action.WAIT or not settings.clear_requeue_delay,
    )


def _wanted_exclusions(
    situation: Situation, settings: PolicySettings, avoid: tuple[NodeName, ...]
) -> tuple[NodeName, ...]:
    """The strongest last: the earlier ones that still hold, then those that this attempt's failure adds; what is
    avoided for other jobs' failures alone comes before them."""
    held = [e.node for e in situation.exclusions if e.until is None or e.until > situation.now]
    earlier = [node for node in held if node not in avoid]
    by_strength = (*earlier, *avoid) if situation.verdict.names_culprits else (*avoid, *earlier)
    wanted = [node for node in dict.fromkeys(by_strength) if node not in situation.user_excluded]
    return tuple(wanted[-settings.max_exclusions :] if settings.max_exclusions else ())


def _named(situation: Situation) -> tuple[NodeName, ...]:
    """The culprits that evidence names, where the verdict calls for keeping the job off them."""
    return situation.verdict.culprits if situation.verdict.names_culprits else ()


def _feasible(wanted: tuple[NodeName, ...], situation: Situation) -> tuple[tuple[NodeName, ...], list[NodeName]]:
    """Give up the weakest exclusions until the job could still start; keep all where the nodes are not known."""
    if situation.usable_nodes is None:
        return wanted, []
    usable = situation.usable_nodes - set(situation.user_excluded)
    keep = list(wanted)
    dropped: list[NodeName] = []
    while keep and len(usable - set(keep)) < situation.ending.node_count:
        dropped.append(keep.pop(0))
    return tuple(keep), dropped


def _since_progress(situation: Situation) -> list[PastAttempt]:
    """The earlier failures after which no attempt has finished a new checkpoint yet.

    The attempt that made the last checkpoint failed after it: its failure is the first of them.
    """
    if situation.made_new_checkpoint:
        return []
    since: list[PastAttempt] = []
    best: int | None = None
    for past in situation.past:
        if past.checkpoint is not None and (best is None or past.checkpoint > best):
            best, since = past.checkpoint, []
        since.append(past)
    return since


def _idle_attempts(situation: Situation, settings: PolicySettings) -> int:
    """How many attempts in a row, this one included, ended without a new checkpoint; free categories do not count."""
    if situation.made_new_checkpoint:
        return 0
    best = situation.best_checkpoint_before
    since = _since_progress(situation)
    idle = [past for past in since if best is None or past.checkpoint != best or past is not since[0]]
    return 1 + len([past for past in idle if settings.budgets.of(past.category, past.cause) is not None])


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _default_reason(symptom: SymptomKind) -> str:
    return f"no cause was found for the {symptom.value}" if symptom is not SymptomKind.NONE else "no cause was found"
