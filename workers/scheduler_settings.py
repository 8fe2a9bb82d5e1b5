"""How a cluster's scheduler is reached: one section for each transport, chosen by its ``kind``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from activities.scheduler.login_host import LoginHost
from activities.stores.access import LocalPath
from workers.settings_section import Section


class SimulatedScheduler(Section):
    """The simulated cluster of the demo and the tests."""

    kind: Literal["simulated"]
    socket: LocalPath
    """Unix socket on which the simulated cluster listens."""


class CliScheduler(Section):
    """Slurm through its own commands, on a host where they work."""

    kind: Literal["cli"] = "cli"
    bin_dir: str = Field(default="", pattern=r"^(/[^:]*)?$")
    """Directory of Slurm's commands, such as ``/opt/slurm/25.05/bin``. Empty: they are found where they usually are."""
    slurm_conf: str = ""
    """Path for ``SLURM_CONF``; empty: Slurm's own default."""
    command_timeout_s: float = Field(default=20.0, gt=0, le=300)


def _login_host(value: object) -> object:
    return LoginHost.parse(value) if isinstance(value, str) else value


Host = Annotated[LoginHost, BeforeValidator(_login_host)]


class SshScheduler(Section):
    """Slurm through its own commands on a login host. Which directory they are in, and which slurm.conf they read, is
    the business of the account there."""

    kind: Literal["ssh"]
    hosts: tuple[Host, ...] = Field(min_length=1, max_length=16)
    """Login hosts of the cluster, ``host`` or ``host:port``, the preferred one first."""
    user: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
    """Account there."""
    known_hosts: LocalPath = Field(default=Path("~/.ssh/known_hosts"), validate_default=True)
    """File with the hosts' keys, as ssh(1) reads it. A host that it does not vouch for is not spoken to."""
    identity_files: tuple[LocalPath, ...] = ()
    """Private keys without a passphrase. Empty: the ssh agent's, and the usual ones in ``~/.ssh``."""
    proxy_jump: Host | None = None
    """A host to go through, ``user@`` before it where the account is another one there."""
    connect_timeout_s: float = Field(default=10.0, gt=0, le=60)
    """For each host."""
    command_timeout_s: float = Field(default=20.0, gt=0, le=300)


class PyslurmScheduler(Section):
    """Slurm through its C library, on a host of the cluster that has pyslurm of the site's own release."""

    kind: Literal["pyslurm"]
    python: str = Field(default="", pattern=r"^(/.*)?$")
    """The Python, 3.11 or newer, that pyslurm is installed for. Empty: the one that runs relight."""
    slurm_conf: str = ""
    """Path for ``SLURM_CONF``; empty: Slurm's own default."""
    call_timeout_s: float = Field(default=20.0, gt=0, le=300)


class RestScheduler(Section):
    """Slurm through slurmrestd, over TCP or through its Unix socket."""

    kind: Literal["rest"]
    url: str = Field(pattern=r"^(https?://[^\s@]+|unix:/\S+)$")
    """``https://host:port``, ``http://host:port``, or ``unix:/path/of/its/socket``."""
    user: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    """Slurm user to act as. Empty: whom the token names."""
    token_file: LocalPath | None = None
    """File that somebody else keeps a valid token in."""
    token_variable: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,99})?$")
    """Environment variable with a token that outlives the worker."""
    token_command: tuple[str, ...] = ()
    """Command that prints a token, word by word, such as ``[scontrol, token, lifespan=3600]``."""
    ca_file: LocalPath | None = None
    """Certificates that the server's must be signed by. Not set: those of the host."""
    client_cert_file: LocalPath | None = None
    client_key_file: LocalPath | None = None
    request_timeout_s: float = Field(default=20.0, gt=0, le=300)

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if sum(map(bool, (self.token_file, self.token_variable, self.token_command))) > 1:
            raise ValueError("set one of token_file, token_variable and token_command, not several")
        return self

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if self.client_key_file and not self.client_cert_file:
            raise ValueError("client_key_file needs client_cert_file")
        return self


AnyScheduler = Annotated[
    SimulatedScheduler | CliScheduler | SshScheduler | RestScheduler | PyslurmScheduler, Field(discriminator="kind")
]
