"""The simulated cluster's journal as calls about single jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from activities.scheduler.simulated import SERVICE_USER
from activities.scheduler.simulated_wire import (
    AllowRequeue,
    Cancel,
    Constrain,
    ControlRequest,
    ErrorKind,
    FailNode,
    Hold,
    Release,
    Request,
    Requeue,
    StartNow,
)
from tests.chaos.records import Call, Verb
from workers.simulator.journal import JournalLine

_VERBS: dict[type, Verb] = {
    Requeue: Verb.REQUEUE,
    Constrain: Verb.CONSTRAIN,
    Release: Verb.RELEASE,
    StartNow: Verb.START_NOW,
    AllowRequeue: Verb.ALLOW_REQUEUE,
    Cancel: Verb.CANCEL,
    Hold: Verb.HOLD,
    FailNode: Verb.NODE_FAILURE,
}


def calls_in(lines: Iterable[str]) -> Iterator[Call]:
    """Yield all calls that changed a job, or were refused to, in the order in which they took effect."""
    for text in lines:
        line = JournalLine.model_validate_json(text)
        verb = _VERBS.get(type(line.request))
        if verb is None:
            continue
        for job in line.jobs:
            yield Call(
                job_id=job.job_id,
                verb=verb,
                ours=_is_ours(line.request),
                received_at=line.received_at,
                at=line.at,
                accepted=line.error is ErrorKind.NONE,
                restart_count=job.restart_count,
                state=job.state,
                hold=job.hold,
                exclude=line.request.exclude if isinstance(line.request, Constrain) else None,
            )


def _is_ours(request: Request) -> bool:
    """People act under their own names, and constrain nothing."""
    if isinstance(request, Requeue | Release):
        return not request.by
    if isinstance(request, Cancel):
        return request.by == SERVICE_USER
    return not isinstance(request, ControlRequest)
