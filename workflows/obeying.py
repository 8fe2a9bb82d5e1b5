"""Carrying out a person's word inside a job's workflow."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from recovery.audit import AuditKind
    from recovery.model import Action, Advice, Exclusion, MilestoneKind, Mode
    from workflows.acting import may_act
    from workflows.ledger import Ledger
    from workflows.overrides import Command, Request, Verb
    from workflows.state import Phase, RecoveryState
    from workflows.visibility import Window

DECIDED_BY_A_PERSON = frozenset({Verb.RESTART, Verb.STOP})


class Obeying:
    """A person's commands over the workflow's state. Who and why go on record with each."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger, window: Window) -> None:
        self._start = start
        self._state = state
        self._ledger = ledger
        self._window = window

    def obey(self, command: Command) -> Advice | None:
        """Change the state as `command` says; return an advice where the scheduler is to be touched."""
        request = command.request
        kind = AuditKind.MODE if command.verb is Verb.MODE else AuditKind.OVERRIDE
        self._ledger.tell(kind, _sentence(command), who=request.who)
        match command.verb:
            case Verb.RESTART:
                return self._own_advice(Action.RESTART, request)
            case Verb.STOP:
                return self._own_advice(Action.STOP, request)
            case Verb.EXCLUDE:
                self._exclude(request)
                self._follow(command)
            case Verb.READMIT:
                self._readmit(request)
                self._follow(command)
            case Verb.PAUSE:
                self._state.paused, self._state.phase = True, Phase.PAUSED
            case Verb.RESUME:
                self._state.paused, self._state.phase = False, Phase.WATCHING
                return self.standing_advice()
            case Verb.MODE:
                self._state.mode_override = request.mode
                return self.standing_advice()
            case Verb.APPROVE | Verb.REJECT:
                self._ledger.note(f"no advice is waiting any more: {command.verb.value} changes nothing")
        return None

    async def approval(self, advice: Advice) -> Advice | None:
        """Wait for a person's approval until the advice expires. Returns the approved advice, by whom it was approved;
        None when it was rejected, expired, or another command decides instead."""
        state = self._state
        try:
            while (left := (advice.expires_at - workflow.now()).total_seconds()) > 0:
                state.phase = Phase.AWAITING_APPROVAL
                self._window.show()
                await workflow.wait_condition(
                    lambda: bool(state.commands), timeout=left, timeout_summary="advice expires without approval"
                )
                # A second opinion may have changed it meanwhile.
                advice = state.advice or advice
                if state.commands[0].verb in DECIDED_BY_A_PERSON:
                    return None
                command, *rest = state.commands
                state.commands = tuple(rest)
                if command.verb in (Verb.APPROVE, Verb.REJECT):
                    if command.request.generation in (None, advice.generation):
                        return self._answered(command, advice)
                    self._ledger.note(f"{command.verb.value} was meant for an advice that has changed since")
                    continue
                self.obey(command)
                if state.mode(self._start.optin) is Mode.OBSERVE:
                    return None
                advice = state.advice or advice
        except TimeoutError:
            pass  # as when the advice has expired before anybody was asked
        finally:
            state.phase = Phase.PAUSED if state.paused else Phase.WATCHING
        state.due = False
        self._ledger.tell(AuditKind.REJECTED, "the advice expired without an approval: nothing is done")
        return None

    def close(self) -> None:
        """Put on record what was accepted while the guard was coming to its end and can't be carried out any more."""
        for command in self._state.commands:
            text = f"{_sentence(command)}; too late, the guard has ended"
            self._ledger.tell(AuditKind.OVERRIDE, text, who=command.request.who)
        self._state.commands = ()

    def _answered(self, command: Command, advice: Advice) -> Advice | None:
        approved = command.verb is Verb.APPROVE
        kind = AuditKind.APPROVED if approved else AuditKind.REJECTED
        self._ledger.tell(kind, _sentence(command), who=command.request.who, with_advice=True)
        if not approved:
            self._state.due = False
            return None
        self._ledger.reach(MilestoneKind.APPROVED, at=workflow.now(), detail=command.request.who)
        return advice.model_copy(update={"by": command.request.who})

    def _follow(self, command: Command) -> None:
        """A person's exclude or readmit changes the restart that is not carried out yet, under a new generation."""
        state, advice, request = self._state, self.open_advice(), command.request
        if advice is None or not advice.restarts:
            return
        if command.verb is Verb.EXCLUDE:
            wanted = tuple(dict.fromkeys((*advice.exclude, *request.nodes)))
        else:
            wanted = tuple(node for node in advice.exclude if node not in request.nodes)
        if wanted == advice.exclude:
            return
        state.generation += 1
        state.advice = advice.model_copy(update={"exclude": wanted, "generation": state.generation})
        text = f"{state.advice.in_words}: as {request.who} wants it"
        self._ledger.tell(AuditKind.ADVISED, text, who=request.who, with_advice=True)

    def _own_advice(self, action: Action, request: Request) -> Advice:
        state, now = self._state, workflow.now()
        state.generation += 1
        state.reconciliation, state.due = None, True
        state.advice = Advice(
            job=self._start.job,
            attempt=state.attempt,
            generation=state.generation,
            action=action,
            exclude=tuple(exclusion.node for exclusion in state.exclusions),
            reason=request.reason or "a person asked for it",
            rule="person",
            advised_at=now,
            expires_at=now + state.terms.advice_lifetime,
            by=request.who,
            kill_first=True,
        )
        return state.advice

    def _exclude(self, request: Request) -> None:
        now = workflow.now()
        kept = [exclusion for exclusion in self._state.exclusions if exclusion.node not in request.nodes]
        new = [Exclusion(node=node, by=request.who, reason=request.reason, since=now) for node in request.nodes]
        self._state.exclusions = (*kept, *new)
        self._state.readmitted = tuple(node for node in self._state.readmitted if node not in request.nodes)

    def _readmit(self, request: Request) -> None:
        state = self._state
        ours = [exclusion.node for exclusion in state.exclusions if exclusion.node in request.nodes]
        state.exclusions = tuple(exclusion for exclusion in state.exclusions if exclusion.node not in request.nodes)
        state.readmitted = tuple(dict.fromkeys((*state.readmitted, *ours)))

    def open_advice(self) -> Advice | None:
        """The current attempt's advice while nothing has come of it."""
        state, advice = self._state, self._state.advice
        ours = advice is not None and advice.attempt == state.attempt
        return advice if ours and state.reconciliation is None else None

    def standing_advice(self) -> Advice | None:
        """Advice that is due and was only recorded is carried out once mode and pause allow it."""
        state, advice = self._state, self.open_advice()
        if advice is None or state.paused or not state.due:
            return None
        in_time = advice.expires_at > workflow.now()
        return advice if in_time and may_act(state, self._start, advice) else None


def _sentence(command: Command) -> str:
    request = command.request
    what = command.verb.value
    if request.nodes:
        what += f" {', '.join(request.nodes)}"
    if request.mode is not None:
        what += f" {request.mode.value}"
    return f"{what}: {request.reason}" if request.reason else what
