"""A person's word: the verbs, what each needs, and when it is refused.

Each verb is an update, which answers the caller, and a signal of the same name, which the Temporal UI and
``temporal workflow signal`` can send. Both end up as a `Command` that the workflow's main loop carries out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic import AfterValidator, Field

    from recovery.model import Mode, NodeName, Value
    from recovery.optin import OptIn
    from recovery.policy.opinions import SERVICE_STOP

if TYPE_CHECKING:
    from workflows.state import RecoveryState


class Verb(StrEnum):
    """What a person can order."""

    APPROVE = "approve"
    REJECT = "reject"
    RESTART = "restart"
    STOP = "stop"
    EXCLUDE = "exclude"
    READMIT = "readmit"
    PAUSE = "pause"
    RESUME = "resume"
    MODE = "mode"


DESCRIPTIONS = {
    Verb.APPROVE: "Approve the advice that waits for approval",
    Verb.REJECT: "Reject the advice that waits for approval",
    Verb.RESTART: "Requeue the job now, keeping it off the excluded nodes",
    Verb.STOP: "Stop the job for good",
    Verb.EXCLUDE: "Keep nodes away from the job's next attempts",
    Verb.READMIT: "Withdraw relight's exclusion of nodes",
    Verb.PAUSE: "Only watch: decide and do nothing until resumed",
    Verb.RESUME: "Go on after a pause",
    Verb.MODE: "Set the job's mode to observe or act",
}


def _a_person(who: str) -> str:
    """The record must tell a person's word from the service's own."""
    if who.strip().lower() in ("policy", "watchdog", "relight"):
        raise ValueError(f"{who!r} is not a person")
    return who


class Request(Value):
    """What every verb takes: who asks and why. Both are recorded."""

    who: Annotated[str, AfterValidator(_a_person)] = Field(min_length=1, max_length=100)
    reason: str = Field(default="", max_length=500)
    request_id: str = Field(default="", max_length=100)
    """The same id twice is carried out once."""
    nodes: tuple[NodeName, ...] = Field(default=(), max_length=64)
    """For exclude and readmit."""
    mode: Mode | None = None
    """For mode."""
    generation: int | None = None
    """For approve and reject: refuse when the advice has changed since."""


class Command(Value):
    """An accepted request."""

    verb: Verb
    request: Request


class Answer(Value):
    """What the caller gets back."""

    accepted: bool = True
    text: str


def refusal(verb: Verb, request: Request, state: RecoveryState, mode: Mode) -> str:
    """Return why the request can't be accepted now and what to do instead, or an empty string."""
    if state.closed:
        return f"this job's recovery has ended ({state.closed}); nothing can be ordered any more"
    if verb in (Verb.EXCLUDE, Verb.READMIT) and not request.nodes:
        return f"{verb.value} needs at least one node"
    if verb is Verb.MODE:
        return _mode_refusal(request, state)
    if verb in (Verb.APPROVE, Verb.REJECT):
        return _approval_refusal(request, state)
    if verb in (Verb.RESTART, Verb.STOP) and mode is Mode.OBSERVE:
        return f"{verb.value} would change the scheduler, and the mode is observe: set mode act first"
    return ""


def _mode_refusal(request: Request, state: RecoveryState) -> str:
    if request.mode is None:
        return "mode needs observe or act"
    if request.mode is Mode.ACT and not state.terms.acknowledged:
        return "the cluster's acknowledge_scheduler_actions is not set: set it in relight.yaml and restart the worker"
    if request.mode is Mode.ACT and state.terms.mode_in(state.partition) is Mode.OBSERVE:
        return "the mode here is observe, and the strictest wins: see mode and act_partitions in relight.yaml"
    return ""


def _approval_refusal(request: Request, state: RecoveryState) -> str:
    if state.phase.value != "awaiting_approval" or state.advice is None:
        return "no advice is waiting for approval"
    if request.generation is not None and request.generation != state.advice.generation:
        return f"the advice is now generation {state.advice.generation}: look at it again"
    if request.generation is None and state.advice.rule == SERVICE_STOP:
        generation = state.advice.generation
        return f"{state.advice.reason}, so the advice is stop now: say so with its generation, {generation}"
    return ""


class Inbox:
    """Where a person's word arrives: what the handlers need of the workflow that they are part of."""

    def __init__(self, state: RecoveryState, optin: OptIn) -> None:
        self.state = state
        self._optin = optin

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self.state.mode(self._optin)


def _inbox(commanded: Any) -> Inbox:
    """The handlers' own `self` stays without annotation: Temporal takes every annotated parameter for an argument."""
    inbox: Inbox = commanded.inbox
    return inbox


def update_for(verb: Verb) -> Any:
    """Return the update handler of `verb`: validated, answered, carried out by the main loop."""

    async def handle(self, request: Request) -> Answer:  # type: ignore[no-untyped-def]
        return _accept(verb, request, _inbox(self).state)

    update = workflow.update(name=verb.value, description=DESCRIPTIONS[verb])(handle)

    @update.validator
    def validate(self, request: Request) -> None:  # type: ignore[no-untyped-def]
        inbox = _inbox(self)
        if request.request_id in inbox.state.request_ids:
            return
        if problem := refusal(verb, request, inbox.state, inbox.mode):
            raise ValueError(problem)

    return update


def signal_for(verb: Verb) -> Any:
    """Return the signal handler of `verb`: it can't be refused, so a refusal becomes a line of the timeline."""

    def handle(self, request: Request) -> None:  # type: ignore[no-untyped-def]
        inbox = _inbox(self)
        if problem := refusal(verb, request, inbox.state, inbox.mode):
            inbox.state.note(workflow.now(), f"{verb.value} was refused: {problem}", who=request.who)
        else:
            _accept(verb, request, inbox.state)

    return workflow.signal(name=verb.value, description=DESCRIPTIONS[verb])(handle)


_TAKES_EFFECT = {
    Verb.READMIT: ": at once while the job waits in the queue after a restart, else when it is requeued next",
}


def _accept(verb: Verb, request: Request, state: RecoveryState) -> Answer:
    if request.request_id and request.request_id in state.request_ids:
        return Answer(text=f"{verb.value} was accepted before")
    state.remember_request(request.request_id)
    state.commands = (*state.commands, Command(verb=verb, request=request))
    return Answer(text=f"{verb.value} accepted{_TAKES_EFFECT.get(verb, '')}")
