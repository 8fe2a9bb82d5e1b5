"""The HTTP API of nvrx-attrsvc, releases 0.7 and 0.6: its paths, its answers, its errors and what to do about them."""

from __future__ import annotations

from typing import Any

import httpx
from pydantic import BaseModel, JsonValue, ValidationError

from activities.attribution.answers import MAX_ANSWER_BYTES
from activities.attribution.settings import NvrxSettings
from activities.stores.connection import StoreConnection, says_html
from activities.stores.errors import StoreRefused, StoreUnavailable
from recovery.model import Value

NOT_FOUND = "not_found"
_REMEDIES = {
    "outside_root": "the service's ALLOWED_ROOT must be above the file: see `copy_dir`",
    "not_readable": "the service may not read the file: let its account do so",
    NOT_FOUND: "the service does not see the file: it needs the same file system",
    "empty_file": "the file is empty",
    "invalid_parameter": "the service keeps one attempt for each file: set `copy_dir`",
}


class Refused(StoreRefused):
    """The service's own no, with its code."""

    def __init__(self, said: str, status: int, code: str) -> None:
        """`code` is matched by its end: 0.7.0 writes ``errorcode.outside_root``."""
        known = [remedy for end, remedy in _REMEDIES.items() if code.endswith(end)]
        self.remedy = known[0] if known else "see the log of the service"
        super().__init__(f"{said}; {self.remedy}")
        self.status = status
        self._code = code

    def is_because(self, code: str) -> bool:
        """Whether `code` is what it says."""
        return self._code.endswith(code)


class Submission(Value):
    """What is told of a log file."""

    log_path: str
    user: str
    job_id: str
    cycle_id: int
    """Which attempt of the job it is. Not in 0.6, nor is the next."""
    analysis_intent: str = "terminal"
    """Nothing else starts an analysis."""


class Recommendation(Value):
    """What 0.7 would do."""

    action: str
    reason: str = ""


class _Failure(Value):
    failure_class: str = ""


class Result(Value):
    """The result of an analysis."""

    state: str = ""
    """By which 0.6 decides."""
    result: JsonValue = None
    """What 0.6 says in words, somewhere in lists."""
    primary_failure: _Failure | None = None

    @property
    def cause(self) -> str:
        """The service's word for the failure; empty where it has none."""
        return self.primary_failure.failure_class if self.primary_failure else ""

    @property
    def words(self) -> str:
        """The first text in those lists."""
        found = self.result
        while isinstance(found, list) and found:
            found = found[0]
        return found if isinstance(found, str) else ""


class Analysis(Value):
    """What both releases answer a look-up with; all else is passed over."""

    status: str
    result: Result
    recommendation: Recommendation | None = None
    """Not in 0.6."""

    @property
    def runs(self) -> bool:
        """Whether there is no result yet."""
        return self.status in ("pending", "in_flight")


class _Error(BaseModel):
    error_code: str = ""


class _Health(BaseModel):
    status: str


class NvrxApi:
    """Speaks to one service. All methods raise `StoreError`."""

    def __init__(self, settings: NvrxSettings) -> None:
        self._connection = StoreConnection(
            settings.called,
            settings.url,
            settings.access,
            settings.timeout_s,
            remedies={429: "raise its RATE_LIMIT_ANALYZE, or lower `max_asks_per_min`"},
        )

    @property
    def shown(self) -> str:
        """The service for people."""
        return self._connection.shown

    async def submit(self, submission: Submission) -> None:
        """Have a log analysed; to say so again changes nothing."""
        told = submission.model_dump()
        try:
            await self._said("POST", "/logs", json=told)
        except Refused as refusal:
            if refusal.status != httpx.codes.UNPROCESSABLE_ENTITY:
                raise
            await self._said("POST", "/logs", json={name: told[name] for name in ("log_path", "user", "job_id")})

    async def look_up(self, log_path: str) -> Analysis:
        """Return how the analysis of a log stands. 0.6 answers only when it has ended."""
        try:
            body = await self._said("GET", "/logs", params={"log_path": log_path, "wait": "false"})
        except Refused as refusal:
            if refusal.is_because(NOT_FOUND):
                # It may have been started anew since the file was submitted.
                raise StoreUnavailable(str(refusal)) from refusal
            raise
        try:
            return Analysis.model_validate_json(body)
        except ValidationError as error:
            raise self._connection.unusable(body) from error

    async def preview(self, path: str) -> None:
        """Have it look at a file as at one to analyse, and change nothing. Raises `Refused` where it can't."""
        await self._said("GET", "/print", params={"log_path": path})

    async def health(self) -> str:
        """Return ``ok``, ``degraded`` or ``fail``, in its own words."""
        body = await self._said("GET", "/healthz")
        try:
            return _Health.model_validate_json(body).status
        except ValidationError as error:
            raise self._connection.unusable(body) from error

    async def takes_attempts(self) -> bool:
        """Return whether it tells the attempts of a job apart, as releases from 0.7 on do."""
        return b"analysis_intent" in await self._said("GET", "/openapi.json")

    async def close(self) -> None:
        """Give up the connections."""
        await self._connection.close()

    async def _said(self, method: str, path: str, **content: Any) -> bytes:
        connection = self._connection
        async with connection.within_time(), connection.asked(method, path, **content) as answer:
            body = await connection.whole(answer, MAX_ANSWER_BYTES)
            if says_html(answer):
                raise connection.unusable(body)
            if answer.status_code == httpx.codes.OK:
                return body
            if answer.status_code in (400, 403, 404, 422) and (code := _code_of(body)):
                raise Refused(connection.said(answer.status_code, body), answer.status_code, code)
            raise connection.refusal(answer.status_code, answer.headers, body)


def _code_of(body: bytes) -> str:
    """The service's own code, where it is its word: a proxy in between says something else."""
    try:
        code = _Error.model_validate_json(body).error_code
    except ValidationError:
        return ""
    return code or ("validation" if b'"detail"' in body else "")
