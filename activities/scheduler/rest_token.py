"""The JSON Web Token that slurmrestd wants: where it comes from, when it ends, and a new one in time.

A token is what ``scontrol token`` prints: a JWT whose claim ``sun`` names the user and ``exp`` its end, in seconds
since 1970. It is read here without being verified: that is Slurm's business, ours is to know when to ask for another.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, SecretStr, ValidationError

from activities.scheduler.command import Runner
from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.slurm_words import last_line

MAX_TOKEN_BYTES = 16_384
RENEW_BEFORE = timedelta(seconds=60)
"""A token that ends sooner is asked for anew."""
_JWT = r"[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*"


class Token(NamedTuple):
    """One token, with what it says of itself."""

    secret: SecretStr
    user: str
    """Whom Slurm takes the bearer for; empty when it does not say."""
    expires_at: datetime | None
    """None: never."""

    def ends_before(self, moment: datetime) -> bool:
        """Whether it is no good any more at `moment`."""
        return self.expires_at is not None and self.expires_at <= moment


class TokenSource(NamedTuple):
    """A place that tokens come from."""

    name: str
    """For messages, such as ``the file /run/slurm.jwt``."""
    read: Callable[[], Awaitable[str]]
    """Returns the text that holds the token. Raises `SchedulerUnavailable`."""


class _Claims(BaseModel):
    sun: str = ""
    exp: Annotated[int, Field(ge=0, lt=253_402_300_800)] | None = None
    """Up to the year 9999."""


def token_file(path: Path) -> TokenSource:
    """Tokens from a file that somebody else renews: the token, or ``SLURM_JWT=`` and the token."""
    name = f"the file {path}"

    async def read() -> str:
        try:
            return await asyncio.to_thread(_read_start_of, path)
        except OSError as error:
            raise SchedulerUnavailable(f"slurmrestd's token: {name} cannot be read ({error.strerror})") from error

    return TokenSource(name, read)


def token_variable(variable: str) -> TokenSource:
    """The token in an environment variable: the same for as long as this process lives."""
    name = f"the variable {variable}"

    async def read() -> str:
        if variable not in os.environ:
            raise SchedulerUnavailable(f"slurmrestd's token: {name} is not set")
        return os.environ[variable]

    return TokenSource(name, read)


def token_command(command: Sequence[str], runner: Runner) -> TokenSource:
    """Tokens from a command such as ``scontrol token``, its words as they are, without a shell."""
    name = f"the command {command[0]}"

    async def read() -> str:
        finished = await runner.run(*command)
        if finished.exit_code:
            raise SchedulerUnavailable(
                f"slurmrestd's token: {name} exited with {finished.exit_code}: {last_line(finished.stderr)}"
            )
        return finished.stdout

    return TokenSource(name, read)


class TokenKeeper:
    """Holds the token in use, and gets another one before it ends or when the server refuses it."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._token: Token | None = None
        self._renewing = asyncio.Lock()

    @property
    def source_name(self) -> str:
        """Where the tokens come from, for messages."""
        return self._source.name

    async def current(self) -> Token:
        """Return a token that has not ended. Raises `SchedulerUnavailable` where none can be had."""
        async with self._renewing:
            now = datetime.now(UTC)
            if self._token is None or self._token.ends_before(now + RENEW_BEFORE):
                self._token = parse_token(await self._source.read(), self._source.name)
            if self._token.ends_before(now):
                raise SchedulerUnavailable(
                    f"slurmrestd's token: that of {self._source.name} ended at {self._token.expires_at:%F %T} UTC; "
                    "make a new one with scontrol token"
                )
            return self._token

    async def another_than(self, refused: Token) -> Token | None:
        """Return a token to try after `refused`; None when the source still has the same one."""
        async with self._renewing:
            if self._token is None or self._token == refused:
                self._token = parse_token(await self._source.read(), self._source.name)
            return None if self._token == refused else self._token


def parse_token(text: str, source_name: str) -> Token:
    """Return the token that `text` holds; `SchedulerUnavailable`, without a word of the text, when it holds none."""
    jwt = text.strip().removeprefix("SLURM_JWT=")
    if len(jwt) > MAX_TOKEN_BYTES or not re.fullmatch(_JWT, jwt):
        raise SchedulerUnavailable(
            f"slurmrestd's token: {source_name} holds no JSON Web Token; it should be as scontrol token prints it"
        )
    claims = _claims(jwt)
    expires_at = None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    return Token(SecretStr(jwt), claims.sun, expires_at)


def _claims(jwt: str) -> _Claims:
    """A token whose claims can't be read is no less a token: the server decides."""
    payload = jwt.split(".")[1]
    try:
        return _Claims.model_validate_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValidationError, binascii.Error):
        return _Claims()


def _read_start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_TOKEN_BYTES + 64).decode(errors="replace")
