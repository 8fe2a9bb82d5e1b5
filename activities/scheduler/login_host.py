"""Where and how a cluster's login hosts are reached by ssh: values only, so that reading the settings loads no ssh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from recovery.model import Value

SSH_PORT = 22
LOGIN_HOST_PATTERN = (
    r"^(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?"
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*))"
    r"(?::(?P<port>[0-9]{1,5}))?$"
)


class LoginHost(Value):
    """One host that ssh connects to."""

    host: str
    port: Annotated[int, Field(ge=1, le=65_535)] = SSH_PORT
    user: str = ""
    """Empty: the same as everywhere on this cluster."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``host``, ``host:port``, ``[2001:db8::1]:port``, each with ``user@`` before it or not. Raises
        `ValueError`."""
        found = re.fullmatch(LOGIN_HOST_PATTERN, text)
        if found is None:
            raise ValueError("should be a host, host:port, or [IPv6 address]:port")
        return cls(
            host=found["address"] or found["name"], port=int(found["port"] or SSH_PORT), user=found["user"] or ""
        )

    def __str__(self) -> str:
        return self.host if self.port == SSH_PORT else f"{self.host}:{self.port}"


class LoginHosts(Value):
    """All that it takes to get onto one of a cluster's login hosts."""

    cluster: str
    hosts: Annotated[tuple[LoginHost, ...], Field(min_length=1)]
    """In the order of preference."""
    user: str
    known_hosts: Path
    """A known_hosts file as ssh(1) reads it; a host that it does not vouch for is not spoken to."""
    identity_files: tuple[Path, ...] = ()
    """Private keys without a passphrase. Empty: those of the ssh agent, and the account's usual ones in ``~/.ssh``."""
    proxy_jump: LoginHost | None = None
    """A host to go through, with the same keys and the same known_hosts file."""
    connect_timeout_s: float = 10.0
    """For one host, from the first packet to the last of the handshake."""
