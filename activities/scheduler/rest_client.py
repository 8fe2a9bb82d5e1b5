"""HTTP to slurmrestd: one client, bounded in time and size, with a token that is renewed when it is refused.

Whatever is no answer of slurmrestd's own is `SchedulerUnavailable`, and says which server, what is wrong and what to
do. Nothing is sent twice but after a refused token, which is refused before anything is done: a request without an
answer may have been carried out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from activities.scheduler.pace import Pace
from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.rest_token import Token, TokenKeeper

DEFAULT_TIMEOUT_S = 20.0
"""For one request: twice Slurm's own MessageTimeout, within which slurmrestd gives slurmctld up."""
MAX_ANSWER_BYTES = 128 * 1024 * 1024
_UNIX = "unix:"
_LIMITS = httpx.Limits(max_connections=8, max_keepalive_connections=4)
_BOUNDED_AS_A_WHOLE = httpx.Timeout(None)
_TOKEN_REFUSED = frozenset({401, 511})
"""slurmrestd's own refusal, and Slurm's of a token that slurmrestd only passed on (seen on 24.11 and 26.05)."""


class RestAnswer(NamedTuple):
    """What came back, complete."""

    status: int
    content_type: str
    text: str
    """Bytes that are not UTF-8 are replaced: users put any bytes into a job's name and comment."""

    @property
    def is_json(self) -> bool:
        """Whether it says that it is JSON. slurmrestd's errors of its own are plain text, a proxy's are HTML."""
        return self.content_type == "application/json"


@dataclass(frozen=True)
class RestServer:
    """Where slurmrestd listens, and how to be sure that it is the right one."""

    url: str
    """``https://host:port``, ``http://host:port``, or ``unix:/path/of/its/socket``."""
    cluster: str = ""
    """Whose it is, for messages."""
    user: str = ""
    """Slurm user to act as; empty: whom the token names."""
    ca_file: Path | None = None
    """Certificates that the server's must be signed by; None: those of the host."""
    client_cert_file: Path | None = None
    client_key_file: Path | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"slurmrestd{f' of {self.cluster}' if self.cluster else ''} at {self.url}"


class RestClient:
    """Sends requests to one slurmrestd. It connects at the first one; `close` it."""

    def __init__(
        self,
        server: RestServer,
        tokens: TokenKeeper | None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        pace: Pace | None = None,
    ) -> None:
        """`tokens`: None where the server knows us without one, as through its unix socket with rest_auth/local;
        `pace`: None where requests need not wait for their turn."""
        self._server = server
        self._tokens = tokens
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._pace = pace
        self._http: httpx.AsyncClient | None = None

    @property
    def server_name(self) -> str:
        """For messages."""
        return self._server.name

    async def account(self) -> str:
        """Return the Slurm user that requests are made as; empty when neither the settings nor a token name one."""
        if self._server.user or self._tokens is None:
            return self._server.user
        return (await self._tokens.current()).user

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def send(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> RestAnswer:
        """Return the answer, whatever its status. Raises `SchedulerUnavailable` where there is none, or none that can
        be slurmrestd's."""
        if self._pace is not None:
            await self._pace.turn()
        request = _Request(method, path, query or {}, body)
        if self._tokens is None:
            return self._let_in(await self._exchange(request, None))
        token = await self._tokens.current()
        answer = await self._exchange(request, token)
        if answer.status in _TOKEN_REFUSED and (another := await self._tokens.another_than(token)) is not None:
            answer = await self._exchange(request, another)
        return self._let_in(answer)

    def _let_in(self, answer: RestAnswer) -> RestAnswer:
        name = self._server.name
        if answer.status in _TOKEN_REFUSED:
            remedy = (
                f"see whether that of {self._tokens.source_name} has ended, is this cluster's, and fits the user"
                if self._tokens
                else "set token_file, token_variable or token_command"
            )
            raise SchedulerUnavailable(f"{name} does not accept the token ({answer.status}): {remedy}")
        if 300 <= answer.status < 400:
            raise SchedulerUnavailable(f"{name} sends us elsewhere ({answer.status}): set url to where it really is")
        return answer

    async def _exchange(self, request: _Request, token: Token | None) -> RestAnswer:
        name = self._server.name
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._receive(request, token)
        except TimeoutError as error:
            raise SchedulerUnavailable(f"{name} did not answer within {self._timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = str(error) or type(error).__name__
            raise SchedulerUnavailable(f"{name} gave no answer: {words[:200]}; {_remedy(error)}") from error

    async def _receive(self, request: _Request, token: Token | None) -> RestAnswer:
        said = bytearray()
        async with self._client().stream(
            request.method,
            request.path,
            params=dict(request.query),
            json=request.body,
            headers=_headers(self._server.user, token),
        ) as response:
            async for chunk in response.aiter_raw():
                said += chunk
                if len(said) > self._max_answer_bytes:
                    raise SchedulerUnavailable(
                        f"{self._server.name} answered with more than {self._max_answer_bytes} bytes: it was not read"
                    )
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return RestAnswer(response.status_code, content_type, said.decode(errors="replace"))

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = _connect(self._server)
        return self._http


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] | None


def _headers(user: str, token: Token | None) -> dict[str, str]:
    # No compression: what is counted against the limit is what comes over the wire and what is kept.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if name := user or (token.user if token else ""):
        headers["X-SLURM-USER-NAME"] = name
    if token:
        headers["X-SLURM-USER-TOKEN"] = token.secret.get_secret_value()
    return headers


def _connect(server: RestServer) -> httpx.AsyncClient:
    # Neither proxies nor passwords from the environment: only what the settings say.
    if server.url.startswith(_UNIX):
        socket = httpx.AsyncHTTPTransport(uds=server.url.removeprefix(_UNIX), verify=_tls(server), limits=_LIMITS)
        return httpx.AsyncClient(
            transport=socket, base_url="http://localhost", timeout=_BOUNDED_AS_A_WHOLE, trust_env=False
        )
    return httpx.AsyncClient(
        base_url=server.url, verify=_tls(server), limits=_LIMITS, timeout=_BOUNDED_AS_A_WHOLE, trust_env=False
    )


def _tls(server: RestServer) -> ssl.SSLContext:
    if not server.url.startswith("https:"):
        # Trusts nobody, and costs nothing to make: the host's certificates take longer to load than most answers.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=server.ca_file)
        if server.client_cert_file:
            context.load_cert_chain(server.client_cert_file, server.client_key_file)
    except (OSError, ssl.SSLError) as error:
        raise SchedulerUnavailable(
            f"{server.name}: ca_file, client_cert_file or client_key_file cannot be read: {error}"
        ) from error
    return context


def _remedy(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "set ca_file to the authority that signed its certificate"
    if isinstance(error, httpx.ConnectError):
        return "see whether it runs, and whether url is right"
    return "what was asked may have been done all the same; the next read tells"
