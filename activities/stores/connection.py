"""HTTP to a store or a service of the site: who we are, how much we take, and what its refusals mean.

Answers are bounded in size and time. Nothing is asked twice here: when to ask again is the asker's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from activities.stores.access import StoreAccess, shown_address
from activities.stores.errors import (
    NoAccess,
    NoTrust,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TooMuch,
)

DEFAULT_PAUSE_S = 5.0
MAX_PAUSE_S = 120.0
_WHOLE_ANSWER_TIMES = 2
"""How many times as long as for its next part is waited for a whole answer."""
_EXCERPT_CHARS = 160
_REMEDIES = {
    401: "check `access` and whether the secret in its file is still good",
    403: "the account may not do this: check `access`",
    404: "check `url`: it is the address before the paths of its API",
    405: "check `url`: this is no such store",
    429: "raise its limits",
}


class StoreConnection:
    """Speaks HTTP to one address. Its messages begin with `called` and that address."""

    def __init__(
        self,
        called: str,
        url: str,
        access: StoreAccess,
        timeout_s: float,
        *,
        headers: Mapping[str, str] | None = None,
        remedies: Mapping[int, str] | None = None,
    ) -> None:
        """`remedies` say what to do about a status of an answer, where this store's settings have words of their own;
        that of 0 is for all that have none."""
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._called = called
        self._access = access
        self._headers = dict(headers or {})
        self._remedies = {0: "check `url`", **_REMEDIES, **(remedies or {})}
        self._http: httpx.AsyncClient | None = None
        self._date = ""

    @property
    def shown(self) -> str:
        """The store for people."""
        return f"{self._called} at {shown_address(self.url)}"

    @property
    def server_time(self) -> datetime | None:
        """What the store's clock said in its last answer, in whole seconds, cut; None where it does not say."""
        try:
            return parsedate_to_datetime(self._date)
        except ValueError:
            return None

    @contextlib.asynccontextmanager
    async def asked(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, endless: bool = False, **content: Any
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and yield the answer, whatever its status, before its body is read. `content` is httpx's
        params, data or json; of an `endless` answer the next part may take any time. Raises `StoreError`."""
        timeout = httpx.Timeout(self.timeout_s, read=None if endless else self.timeout_s)
        http, sent = self._connected(), {**(headers or {}), **self.authorization()}
        try:
            request = http.build_request(method, f"{self.url}{path}", headers=sent, timeout=timeout, **content)
            async with contextlib.aclosing(await http.send(request, stream=True)) as answer:
                self._date = answer.headers.get("date", "")
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise self.no_answer(error) from error

    @contextlib.asynccontextmanager
    async def within_time(self) -> AsyncIterator[None]:
        """Bound everything inside by what is waited for a whole answer. Raises `StoreError`."""
        try:
            async with asyncio.timeout(_WHOLE_ANSWER_TIMES * self.timeout_s):
                yield
        except TimeoutError as error:
            raise self.no_answer(error) from error

    async def whole(self, answer: httpx.Response, most_bytes: int) -> bytes:
        """Read the body of `answer`. Raises `TooMuch` where it has more than `most_bytes`."""
        parts: list[bytes] = []
        size = 0
        async for part in answer.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise TooMuch(f"{self.shown}: one answer has more than {_size(most_bytes)}")
        return b"".join(parts)

    def authorization(self) -> dict[str, str]:
        """Tell who we are and what else each request carries; secrets are read each time, for they are renewed."""
        try:
            return {**self._headers, **self._access.authorization()}
        except (OSError, UnicodeError) as error:
            raise NoAccess(f"{self.shown}: a secret of `access` can't be read: {cut(str(error))}") from error

    def tls(self) -> ssl.SSLContext:
        """Return whom we trust and what we show. Raises `NoTrust`."""
        try:
            context = ssl.create_default_context(cafile=self._access.ca_file)
            if self._access.client_cert_file is not None:
                context.load_cert_chain(self._access.client_cert_file, self._access.client_key_file)
        except OSError as error:
            raise NoTrust(f"{self.shown}: a certificate of `access` can't be used: {cut(str(error))}") from error
        return context

    def no_answer(self, error: Exception) -> StoreError:
        """Return what it means that there was no answer because of `error`."""
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            return StoreUnavailable(f"{self.shown}: no answer within {self.timeout_s:g} s; is it overloaded?")
        why = _cause(error)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            return NoTrust(f"{self.shown}: its certificate is not trusted; set `access.ca_file` to its authority")
        if "SSL" in why:
            return NoTrust(f"{self.shown}: TLS fails ({why}); check `url` and `access.client_cert_file`")
        ours = ", `access.client_cert_file`" if self.url.startswith("https:") else ""
        return StoreUnavailable(f"{self.shown}: no answer ({why}); check `url`{ours} and that the store runs")

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> StoreError:
        """Return what an answer with another status than 200 means; `body` is its beginning."""
        said = self.said(status, body)
        if status == httpx.codes.TOO_MANY_REQUESTS or (status == 503 and "retry-after" in headers):
            pause_s = pause_of(headers)
            return StoreBusy(
                f"{said}; asking again in {pause_s:g} s: {self._remedies.get(429, 'raise its limits')}", pause_s
            )
        if status >= 500:
            return StoreUnavailable(f"{said}; see the store's own log")
        if 300 <= status < 400:
            return StoreRefused(f"{said}; it points elsewhere: set `url` to where it is")
        refused = NoAccess if status in (401, 403) else StoreRefused
        return refused(f"{said}; {self._remedies.get(status, self._remedies[0])}")

    def said(self, status: int, body: bytes) -> str:
        """Return status and beginning of an answer for people."""
        return f"{self.shown}: HTTP {status}" + (f", {_excerpt(body)!r}" if body and not _is_html(body) else "")

    def unusable(self, body: bytes) -> StoreUnavailable:
        """Return the error for an answer that is not what the store's API says."""
        kind = "HTML: is a login page or a proxy in between?" if _is_html(body) else "not what its API says"
        return StoreUnavailable(f"{self.shown}: the answer is {kind}: {_excerpt(body)!r}; check `url`")

    async def close(self) -> None:
        """Give up the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def _connected(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = httpx.AsyncClient(
                verify=self.tls(),
                headers={"User-Agent": "relight"},
                limits=httpx.Limits(max_connections=16),
                follow_redirects=False,
            )
        return self._http


def says_html(answer: httpx.Response) -> bool:
    """Whether `answer` calls itself HTML."""
    return "html" in answer.headers.get("content-type", "")


async def beginning(answer: httpx.Response) -> bytes:
    """Return the first part of a body."""
    async for part in answer.aiter_bytes(4_096):
        return part
    return b""


def pause_of(headers: Mapping[str, str]) -> float:
    """Read Retry-After, seconds or a date, and bound it."""
    retry_after = headers.get("retry-after", "")
    try:
        asked_s = float(retry_after)
    except ValueError:
        try:
            asked_s = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            asked_s = DEFAULT_PAUSE_S
    return min(max(asked_s, 1.0), MAX_PAUSE_S) if asked_s == asked_s else DEFAULT_PAUSE_S


def cut(text: str) -> str:
    """One line of `text`, printable and short."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())[:_EXCERPT_CHARS]


def _cause(error: BaseException) -> str:
    """What an error says, or the first that does of those it came from: httpx leaves some without a word."""
    reason: BaseException | None = error
    while reason is not None:
        if said := cut(str(reason)):
            return said
        reason = reason.__cause__ or reason.__context__
    return type(error).__name__


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def _is_html(body: bytes) -> bool:
    return body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html", b"<head", b"<?xml"))


def _excerpt(body: bytes) -> str:
    return cut(body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace"))
