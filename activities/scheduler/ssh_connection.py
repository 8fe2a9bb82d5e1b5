"""The one ssh connection to a cluster: made when it is needed, kept alive, and made again when it was lost.

asyncssh speaks the protocol. What is decided here: a host must be vouched for by the known_hosts file, and that cannot
be switched off; the next login host is tried where one does not answer; and while none does, hosts are asked ever more
rarely, up to once in `MAX_PAUSE_S`, and every caller is told at once what was wrong the last time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import asyncssh
import structlog

from activities.scheduler.login_host import LoginHost, LoginHosts
from activities.scheduler.protocol import SchedulerUnavailable

KEEPALIVE_EVERY_S = 10
KEEPALIVES_UNANSWERED = 3
"""After as many a connection counts as lost."""
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
CLOSE_S = 5.0

log = structlog.get_logger(__name__)
# At its own level it would log every command with all that is in it.
asyncssh.set_log_level(logging.WARNING)


class LoginConnection:
    """A connection to the first of the login hosts that takes one, shared by all commands."""

    def __init__(self, login: LoginHosts) -> None:
        self._login = login
        self._connection: asyncssh.SSHClientConnection | None = None
        self._preferred = 0
        self._connecting = asyncio.Lock()
        self._pause_s = 0.0
        self._retry_at = 0.0
        self._trouble = ""

    async def get(self) -> asyncssh.SSHClientConnection:
        """Return the connection, after connecting where there is none.

        Raises `SchedulerUnavailable` when no host takes one, and while it is too early to ask them again.
        """
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return self._connection

    def give_up(self, connection: asyncssh.SSHClientConnection) -> None:
        """Drop a connection that is open and answers no more: the next `get` makes a new one."""
        connection.abort()
        if self._connection is connection:
            self._connection = None

    async def close(self) -> None:
        """Close the connection; `get` would make a new one."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await connection.wait_closed()

    async def _connect(self) -> asyncssh.SSHClientConnection:
        now = asyncio.get_running_loop().time()
        if now < self._retry_at:
            raise self._unreachable(f"{self._trouble}; asked again in {self._retry_at - now:.0f} s")
        troubles = []
        count = len(self._login.hosts)
        for index in (*range(self._preferred, count), *range(self._preferred)):
            host = self._login.hosts[index]
            try:
                connection = await _connect_to(host, self._login)
            except HostUnusable as error:
                troubles.append(f"{host}: {error}")
                continue
            self._preferred, self._pause_s = index, 0.0
            log.info("connected to a login host", cluster=self._login.cluster, host=str(host))
            return connection
        self._trouble = "; ".join(troubles)
        self._pause_s = min(self._pause_s * 2 or FIRST_PAUSE_S, MAX_PAUSE_S)
        self._retry_at = asyncio.get_running_loop().time() + self._pause_s
        raise self._unreachable(self._trouble)

    def _unreachable(self, trouble: str) -> SchedulerUnavailable:
        return SchedulerUnavailable(f"cluster {self._login.cluster} cannot be reached by ssh: {trouble}")


class HostUnusable(Exception):
    """One host took no connection. The message says why and what to do."""


class _Watchful(asyncssh.SSHClient):
    """Remembers a host key that the known_hosts file does not vouch for, to tell of it."""

    refused_key = ""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        """Asked by asyncssh for a key that is not in the file; nothing else vouches for one."""
        self.refused_key = key.get_fingerprint()
        return False


async def _connect_to(host: LoginHost, login: LoginHosts) -> asyncssh.SSHClientConnection:
    """Connect to one host, through the jump host where there is one. Raises `HostUnusable`."""
    if login.proxy_jump is None:
        return await _handshake(host, login, tunnel=None)
    try:
        jump = await _handshake(login.proxy_jump, login, tunnel=None)
    except HostUnusable as error:
        raise HostUnusable(f"the jump host {login.proxy_jump}: {error}") from error
    try:
        connection = await _handshake(host, login, tunnel=jump)
    except BaseException:
        jump.abort()
        raise
    connection.set_tunnel(jump)  # which closes the one with the other
    return connection


async def _handshake(
    host: LoginHost, login: LoginHosts, *, tunnel: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHClientConnection:
    client = _Watchful()
    user = host.user or login.user
    known_hosts = _known_hosts(login.known_hosts)
    keys = [key for path in login.identity_files for key in _keys(path)]
    try:
        async with asyncio.timeout(login.connect_timeout_s):
            return await asyncssh.connect(
                host.host,
                host.port,
                username=user,
                client_factory=lambda: client,
                known_hosts=known_hosts,
                client_keys=keys or (),
                agent_path=None if keys else (),
                tunnel=tunnel or (),
                config=None,
                preferred_auth="publickey",
                keepalive_interval=KEEPALIVE_EVERY_S,
                keepalive_count_max=KEEPALIVES_UNANSWERED,
            )
    except TimeoutError as error:
        raise HostUnusable(
            f"no complete answer within {login.connect_timeout_s:g} s; see whether sshd is well there"
        ) from error
    except asyncssh.HostKeyNotVerifiable as error:
        raise HostUnusable(_why_not_vouched_for(host, login, known_hosts, client.refused_key, error)) from error
    except asyncssh.PermissionDenied as error:
        raise HostUnusable(
            f"{user}'s key was refused; put the public key into {user}'s authorized_keys there, and the private one"
            " into identity_files or the agent here"
        ) from error
    except asyncssh.Error as error:
        raise HostUnusable(str(error) or type(error).__name__) from error
    except OSError as error:
        raise HostUnusable(f"{error.strerror or error}") from error


def _known_hosts(path: Path) -> asyncssh.SSHKnownHosts:
    """Read the file at each connection: what an operator adds counts without a restart."""
    try:
        return asyncssh.read_known_hosts(str(path))
    except (OSError, ValueError) as error:
        raise HostUnusable(f"the known_hosts file {path} cannot be read ({error}); name one that can") from error


def _keys(path: Path) -> Sequence[asyncssh.SSHKeyPair]:
    """Read a private key, with the certificate beside it where there is one."""
    try:
        return asyncssh.load_keypairs(str(path))
    except (OSError, ValueError) as error:
        raise HostUnusable(
            f"the identity file {path} cannot be read ({error}); name one without a passphrase, or use the agent"
        ) from error


def _why_not_vouched_for(
    host: LoginHost,
    login: LoginHosts,
    known_hosts: asyncssh.SSHKnownHosts,
    fingerprint: str,
    error: asyncssh.HostKeyNotVerifiable,
) -> str:
    if not fingerprint:
        return f"{error}; correct {login.known_hosts}"
    keys, authorities, *_ = known_hosts.match(host.host, "", None if host.port == 22 else host.port)
    if keys or authorities:
        return (
            f"its host key {fingerprint} is not the one in {login.known_hosts}: another machine may be answering; "
            "ask the site before you change the file"
        )
    return (
        f"it is not in {login.known_hosts}; compare its key {fingerprint} with the site's, then add the line that "
        "ssh-keyscan prints"
    )
