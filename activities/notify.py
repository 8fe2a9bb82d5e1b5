"""Tells people: one structured log line for every notice and, where the operator set one, a webhook.

The webhook gets JSON whose ``text`` Slack, Mattermost and Rocket.Chat show as it is. Its address is a secret and is
never in a log, an error or a history.
"""

from __future__ import annotations

from typing import Any

import httpx
import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from recovery.notices import Notice
from recovery.redaction import redact

POST_TIMEOUT_S = 10.0
RETRIED_STATUSES = frozenset({408, 425, 429})

log = structlog.get_logger(__name__)


class Notifier:
    """Hands notices on to `webhook_url`; with an empty one they are only logged."""

    def __init__(self, webhook_url: str) -> None:
        self._webhook_url = webhook_url
        self._http: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Give up the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    @activity.defn
    async def notify(self, notice: Notice) -> None:
        """Tell of `notice`. Raises `ApplicationError` of type ``NotifyUnavailable`` when the webhook did not take it;
        one that refuses it for good is not tried again."""
        if activity.info().attempt == 1:
            log.warning("notice", cluster=notice.cluster, kind=notice.kind.value, text=redact(notice.text))
        if self._webhook_url:
            await self._post(payload_of(notice))

    async def _post(self, payload: dict[str, Any]) -> None:
        if self._http is None:
            self._http = httpx.AsyncClient(timeout=POST_TIMEOUT_S)
        try:
            async with self._http.stream("POST", self._webhook_url, json=payload) as answer:
                status = answer.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # httpx's own message may quote the address.
            raise _untold(f"can't be reached ({type(error).__name__})", final=False) from None
        if not 200 <= status < 300:
            final = 300 <= status < 500 and status not in RETRIED_STATUSES
            raise _untold(f"answered with status {status}", final=final)


def payload_of(notice: Notice) -> dict[str, Any]:
    """Return the JSON that the webhook gets. Names of jobs and nodes come from outside: nobody is mentioned by them."""
    text = redact(notice.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return notice.model_dump(mode="json") | {"text": f"relight: {text}"}


def _untold(what: str, *, final: bool) -> ApplicationError:
    return ApplicationError(
        f"the webhook {what}; see notify.webhook_url", type="NotifyUnavailable", non_retryable=final
    )
