"""A site's own attribution service: one POST for each phase, asked again while it answers that it still works."""

from __future__ import annotations

import time
from functools import partial

import httpx
from pydantic import ValidationError

from activities.attribution.answers import MAX_ANSWER_BYTES, in_words, nodes_of_the_attempt, opinion
from activities.attribution.contract import Answer, Request, request_of
from activities.attribution.patience import patiently
from activities.attribution.protocol import AskPhase, Question
from activities.attribution.settings import HttpSettings
from activities.stores.connection import StoreConnection, beginning, pause_of, says_html
from activities.stores.errors import StoreBusy, StoreRefused
from activities.telemetry import derived_id
from recovery.opinion import Heard


class _StillWorking(StoreBusy):
    """The service has taken the question and has no answer yet."""


class HttpService:
    """Asks one service."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._connection = StoreConnection(settings.called, settings.url, settings.access, settings.timeout_s)

    @property
    def name(self) -> str:
        """What it is called on record."""
        return self._settings.called

    @property
    def fast_s(self) -> float:
        """How long the fast phase may take; 0: there is none."""
        return self._settings.fast_s

    @property
    def slow_s(self) -> float:
        """How long the slow phase may take."""
        return self._settings.slow_s

    async def ask(self, question: Question, phase: AskPhase) -> Heard:
        """Post the question until there is an answer, within the phase's time. Raises nothing."""
        limit_s = self.fast_s if phase is AskPhase.FAST else self.slow_s
        until_s = time.monotonic() + limit_s
        return await patiently(self.name, limit_s, partial(self._answered, question, phase, until_s))

    async def reached(self) -> str:
        """Return the service for people, if somebody who takes questions is there. Raises `StoreError`."""
        connection = self._connection
        async with connection.within_time(), connection.asked("GET", "") as got:
            # What only takes questions says that it can't be read.
            if got.status_code not in (httpx.codes.METHOD_NOT_ALLOWED, httpx.codes.UNPROCESSABLE_ENTITY):
                if not got.is_success:
                    raise connection.refusal(got.status_code, got.headers, await beginning(got))
                if says_html(got):
                    raise connection.unusable(await beginning(got))
        return connection.shown

    async def close(self) -> None:
        """Give up the connections."""
        await self._connection.close()

    async def _answered(self, question: Question, phase: AskPhase, until_s: float) -> Heard:
        left_s = max(0.0, until_s - time.monotonic())
        return self._heard(await self._posted(request_of(question, phase, left_s)), question)

    def _heard(self, answer: Answer, question: Question) -> Heard:
        nodes, strangers = nodes_of_the_attempt(answer.nodes, question.nodes)
        text = "; ".join(part for part in (answer.text[:400], in_words(strangers)) if part)
        return opinion(
            self.name,
            text,
            cause=answer.cause,
            hint=answer.action,
            category=answer.category,
            nodes=nodes,
            confidence=answer.confidence,
        )

    async def _posted(self, request: Request) -> Answer:
        connection = self._connection
        headers = {"Content-Type": "application/json", "traceparent": traceparent(request)}
        asked = connection.asked("POST", "", headers=headers, content=request.model_dump_json())
        async with connection.within_time(), asked as got:
            body = await connection.whole(got, MAX_ANSWER_BYTES)
            if got.status_code not in (httpx.codes.OK, httpx.codes.ACCEPTED):
                raise connection.refusal(got.status_code, got.headers, body)
            if says_html(got):
                raise connection.unusable(body)
            try:
                answer = Answer.model_validate_json(body)
            except ValidationError as error:
                raise StoreRefused(f"{connection.shown}: {_first(error)}; see its schema in docs") from error
            if answer.status == "pending":
                wait_s = pause_of(got.headers) if "retry-after" in got.headers else self._settings.poll_interval_s
                raise _StillWorking(f"{connection.shown}: it still worked when time was over", wait_s)
            return answer


def traceparent(request: Request) -> str:
    """Return the W3C trace context of a question: its trace is the one that the recovery is exported as, where the
    advice that was asked about is the one that is followed."""
    span = derived_id(f"{request.key}/ask {request.phase.value}", 8)
    return f"00-{derived_id(request.key, 16):032x}-{span:016x}-01"


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"the answer is not as its schema says: {where}: {problem['msg']}" if where else f"no JSON: {problem['msg']}"
