"""What came out of the runs: figures, a table, JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from recovery.audit import AuditKind
from recovery.model import Value
from tests.chaos.blows import BlowKind
from tests.chaos.interruptions import completions_s
from tests.chaos.plan import Plan
from tests.chaos.records import Breach, JobHistory, Observed, Verb, Violation


class RunResult(Value):
    """The figures of one run."""

    seed: int
    command: str
    """What does this run again."""
    took_s: float
    blows: dict[BlowKind, int]
    faulty_answers: bool
    jobs: int
    recoveries: int
    """Requeues by relight, each recorded from order to outcome."""
    completions_s: tuple[float, ...]
    """Of each recovery that a worker's death interrupted: from the worker's return to the outcome."""
    watchdog_releases: int
    audit_events: int
    longest_hold_s: float
    """By a requeue, as the scheduler was seen from outside."""
    replayed: int
    violations: tuple[Violation, ...]
    log: str = ""
    """The ends of the logs, where something was broken."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        observed: Observed,
        fallen: Mapping[BlowKind, int],
        violations: Sequence[Violation],
        *,
        replayed: int,
        took_s: float,
        log: str,
    ) -> RunResult:
        """Sum one run up."""
        holds = [held for job in observed.jobs for held in job.holds]
        told_by_watchdog = [event.kind for job in observed.jobs for event in job.of_watchdog]
        return cls(
            seed=plan.seed,
            command=plan.command,
            took_s=round(took_s, 1),
            blows=dict(fallen),
            faulty_answers=bool(plan.faults),
            jobs=len(observed.jobs),
            recoveries=sum(_recoveries(job) for job in observed.jobs),
            completions_s=tuple(round(s, 1) for job in observed.jobs for s in completions_s(job, observed.outages)),
            watchdog_releases=told_by_watchdog.count(AuditKind.ACTED),
            audit_events=sum(len(job.events) + len(job.of_watchdog) for job in observed.jobs),
            longest_hold_s=round(max([(held.until - held.since).total_seconds() for held in holds], default=0.0), 1),
            replayed=replayed,
            violations=tuple(violations),
            log=log,
        )


def table(results: Sequence[RunResult]) -> str:
    """Return the sums over all runs as text for a terminal."""
    blows: Counter[BlowKind] = Counter()
    for result in results:
        blows.update(result.blows)
    broken = Counter(violation.breach for result in results for violation in result.violations)
    completions = sorted(s for result in results for s in result.completions_s)
    rows: list[tuple[str, object]] = [
        ("runs", len(results)),
        ("jobs", sum(result.jobs for result in results)),
        *((kind.value, blows[kind]) for kind in BlowKind),
        ("runs with faulty scheduler answers", sum(result.faulty_answers for result in results)),
        ("recoveries", sum(result.recoveries for result in results)),
        ("... interrupted by a worker's death", len(completions)),
        ("... done after its return: median (s)", round(median(completions), 1) if completions else "-"),
        ("... 95 of 100 within (s)", _quantile(completions, 0.95)),
        ("... the last one (s)", _quantile(completions, 1.0)),
        ("releases by the watchdog", sum(result.watchdog_releases for result in results)),
        ("longest hold (s)", max((result.longest_hold_s for result in results), default=0.0)),
        ("audit events", sum(result.audit_events for result in results)),
        ("histories replayed", sum(result.replayed for result in results)),
        *((f"BROKEN: {breach.value}", broken[breach]) for breach in Breach),
    ]
    return "\n".join(f"{name:<40}{value!s:>8}" for name, value in rows)


def complaints(results: Iterable[RunResult], cluster: str) -> str:
    """Return every violation with the way to see it again; empty when there is none."""
    lines: list[str] = []
    for result in results:
        lines += [f"{v.breach.value}: {v.subject}: {v.detail}" for v in result.violations]
        if result.violations:
            lines.append(f"see it again: {result.command} --cluster {cluster}")
            lines.append(result.log)
    return "\n".join(lines)


def _quantile(ordered: Sequence[float], share: float) -> float | str:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else "-"


def _recoveries(job: JobHistory) -> int:
    reconciled = {e.advice.key for e in job.events if e.kind is AuditKind.RECONCILED and e.advice and e.advice.restarts}
    requeues = [call for call in job.our_calls if call.accepted and call.verb is Verb.REQUEUE]
    return min(len(reconciled), len(requeues))
