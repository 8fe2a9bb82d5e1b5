"""A second opinion on an attempt that has a verdict and an advice: what a service of the site says, and what the policy
then says."""

from __future__ import annotations

from temporalio import activity

from activities.assess import Assessor
from activities.assessment import AttributeOrder, Attribution, Decided, question_of
from activities.attribution.protocol import AskPhase, AttributionService
from activities.heartbeats import heartbeating
from recovery.model import Value
from recovery.opinion import Heard, Opinion

HEARTBEAT_S = 5.0


class OpinionOrder(Value):
    """Which attempt to ask about, and what relight itself says of it."""

    attempt: AttributeOrder
    attribution: Attribution
    key: str
    """Of the advice that was given."""


class SecondOpinion(Value):
    """What came of it."""

    heard: Heard
    decided: Decided | None = None
    """What the policy says with that opinion; None: there is none."""


class Counsel:
    """Asks one cluster's service, as a Temporal activity."""

    def __init__(self, service: AttributionService, assessor: Assessor) -> None:
        self._service = service
        self._assessor = assessor

    @activity.defn
    async def second_opinion(self, order: OpinionOrder) -> SecondOpinion:
        """Ask for as long as the service may take, and decide anew on what it says."""
        async with heartbeating(HEARTBEAT_S):
            lines = await self._assessor.lines.of(order.attempt)
            question = question_of(order.attempt, key=order.key, verdict=order.attribution.verdict, lines=lines)
            heard = await self._service.ask(question, AskPhase.SLOW)
            if not isinstance(heard, Opinion):
                return SecondOpinion(heard=heard)
            decided = await self._assessor.reconsider(order.attempt, order.attribution, heard)
            return SecondOpinion(heard=heard, decided=decided)
