"""How a log store is asked: whole answers, answers that come line by line, and websockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime

import httpx
import re2
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from activities.logs.stores.settings import StoreSettings
from activities.stores.connection import StoreConnection, beginning, says_html
from activities.stores.errors import StoreError, StoreUnavailable, TooMuch

MAX_ANSWER_BYTES = 64 << 20
MAX_LINE_BYTES = 4 << 20
"""Of one JSON line or one websocket message of a store."""
_MOST_ENTRIES = re2.compile(r"max entries limit[^()]*\((\d+) ?> ?(\d+)\)")
_STRETCH = re2.compile(r"(?i)time range|query length|too long|maxQueryTimeRange")
_REMEDIES = {
    0: "check `selector`, `canary`, `labels` and `tenant`",
    403: "the account may not read this tenant: check `access` and `tenant`",
    404: "check `url`: it is the address before the store's own paths",
    429: "raise the store's limits or `poll_interval_s`",
}


class StoreClient:
    """Speaks to one store. Its messages begin with the store's name and address."""

    def __init__(self, settings: StoreSettings, headers: Mapping[str, str], *, method: str) -> None:
        self._settings = settings
        self._method = method
        self._connection = StoreConnection(
            settings.called,
            settings.url,
            settings.access,
            settings.timeout_s,
            headers=headers,
            remedies=_REMEDIES,
        )

    @property
    def shown(self) -> str:
        """The store for people."""
        return self._connection.shown

    @property
    def server_time(self) -> datetime | None:
        """What the store's clock said in its last answer, in whole seconds, cut; None where it does not say."""
        return self._connection.server_time

    async def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """Ask and return the whole answer. Raises `StoreError`."""
        async with self._connection.within_time(), self._asked(path, params) as answer:
            return await self._connection.whole(answer, MAX_ANSWER_BYTES)

    async def lines(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[list[bytes], None]:
        """Ask and yield the answer's lines as they arrive, in one list what came together; at first an empty list.
        Raises `StoreError`."""
        rest = b""
        async with self._asked(path, params, endless=True) as answer:
            yield []
            async for part in answer.aiter_bytes():
                *ended, rest = (rest + part).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    raise StoreUnavailable(f"{self.shown}: a line of its answer does not end")
                if ended:
                    yield [line for line in ended if line]

    async def messages(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Open a websocket and yield its messages; at first an empty one. Raises `StoreError`."""
        url = httpx.URL(f"{self._connection.url}{path}", params=dict(params))
        url = url.copy_with(scheme="wss" if url.scheme == "https" else "ws", userinfo=b"")
        tls = self._connection.tls() if url.scheme == "wss" else None
        try:
            async with connect(
                str(url),
                additional_headers=self._connection.authorization(),
                ssl=tls,
                open_timeout=self._settings.timeout_s,
                max_size=MAX_LINE_BYTES,
                user_agent_header="relight",
            ) as socket:
                yield b""
                async for message in socket:
                    yield message.encode() if isinstance(message, str) else message
        except InvalidStatus as refusal:
            body = bytes(refusal.response.body or b"")
            raise self._refusal(refusal.response.status_code, refusal.response.headers, body) from refusal
        except (OSError, TimeoutError, WebSocketException, ValueError) as error:
            raise self._connection.no_answer(error) from error

    def unusable(self, body: bytes) -> StoreUnavailable:
        """Return the error for an answer that is not what the store's API says."""
        return self._connection.unusable(body)

    async def close(self) -> None:
        """Give up the connections."""
        await self._connection.close()

    @contextlib.asynccontextmanager
    async def _asked(
        self, path: str, params: Mapping[str, str], *, endless: bool = False
    ) -> AsyncIterator[httpx.Response]:
        asked = {"params" if self._method == "GET" else "data": dict(params)}
        async with self._connection.asked(self._method, path, endless=endless, **asked) as answer:
            if answer.status_code != httpx.codes.OK:
                raise self._refusal(answer.status_code, answer.headers, await beginning(answer))
            if says_html(answer):
                raise self.unusable(await beginning(answer))
            yield answer

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> StoreError:
        said, text = self._connection.said(status, body), body.decode("utf-8", "replace")
        if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            return TooMuch(said)
        if status in (400, 422) and (found := _MOST_ENTRIES.search(text)):
            return TooMuch(said, most_entries=int(found.group(2)))
        if status in (400, 422) and _STRETCH.search(text):
            return TooMuch(said, stretch=True)
        return self._connection.refusal(status, headers, body)


class ClientOfStore:
    """What every kind of store has from its client."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    @property
    def shown(self) -> str:
        """The store for people."""
        return self._client.shown

    @property
    def server_time(self) -> datetime | None:
        """What its clock said in its last answer, in whole seconds, cut; None where it does not say."""
        return self._client.server_time

    async def close(self) -> None:
        """Give up the connections."""
        await self._client.close()
