"""A failure as the watch reports it: what is certain of it, in words, and where nothing else is known."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.assessment import Attribution, ending_of
    from activities.findings import Ended, Faulted, Requeued, Slowed, Stalled
    from activities.scheduler.protocol import JobRecord
    from recovery.model import Action, Category, NodeName, Symptom, SymptomKind, Verdict

Failure = Ended | Requeued | Faulted | Stalled | Slowed
"""The findings that call for a decision."""


def established_by(failure: Failure) -> SymptomKind:
    """What the watch knows by itself, whatever the logs say: a fatal line alone may be a quotation."""
    if isinstance(failure, Stalled):
        return failure.symptom
    if isinstance(failure, Slowed):
        return SymptomKind.STRAGGLER
    return SymptomKind.CRASH if is_certain(failure) else SymptomKind.NONE


def is_certain(failure: Failure) -> bool:
    """Whether the attempt has failed, beyond doubt."""
    return isinstance(failure, Ended | Stalled) or (isinstance(failure, Faulted) and failure.certain)


def allocation_of(failure: Failure) -> tuple[NodeName, ...]:
    """The nodes that the failed attempt had; none where the finding does not tell."""
    return failure.nodes if isinstance(failure, Requeued) else failure.record.nodes


def symptom_of(failure: Failure) -> Symptom:
    """What happened to the attempt."""
    record = failure.record
    if isinstance(failure, Stalled):
        kind, summary = failure.symptom, failure.summary
    elif isinstance(failure, Faulted):
        kind = SymptomKind.CRASH
        summary = "a fatal line, and no progress since" if failure.certain else "a fatal line while the job runs"
    elif isinstance(failure, Slowed):
        kind, summary = SymptomKind.STRAGGLER, failure.summary
    elif isinstance(failure, Requeued):
        kind, summary = SymptomKind.CRASH, "the attempt ended and the job was requeued, not by relight"
    else:
        kind, summary = SymptomKind.CRASH, f"the attempt ended: {_end(record)}"
    happened = failure.happened_at if isinstance(failure, Faulted | Slowed) else record.ended_at
    return Symptom(kind=kind, detected_at=failure.at, happened_at=happened, summary=summary, evidence=failure.evidence)


def _end(record: JobRecord) -> str:
    how = f"signal {record.exit_signal}" if record.exit_signal else f"exit code {record.exit_code}"
    return f"{record.state.value}, {how}"


def unattributed(failure: Failure) -> Attribution:
    """What is known where attribution gives no answer: the scheduler's record, and no verdict."""
    symptom = SymptomKind.HANG if isinstance(failure, Stalled) else SymptomKind.CRASH
    ending = ending_of(failure.record, requeued=isinstance(failure, Requeued), nodes=allocation_of(failure))
    verdict = Verdict(
        symptom=symptom,
        category=Category.UNKNOWN,
        cause="not_attributed",
        suggested=Action.RESTART,
        summary="attribution gave no answer within its deadline",
    )
    return Attribution(verdict=verdict, ending=ending, attributed_at=workflow.now())
