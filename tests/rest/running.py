"""A real slurmrestd for a real cluster, and a client of it."""

from __future__ import annotations

import shutil
import signal

from activities.scheduler.command import LocalRunner
from activities.scheduler.rest_client import DEFAULT_TIMEOUT_S, RestClient, RestServer
from activities.scheduler.rest_token import TokenKeeper, token_command
from tests.slurm.cluster import SlurmCluster, free_ports


def why_no_slurmrestd(slurm: SlurmCluster) -> str | None:
    """Return why there can be no slurmrestd for `slurm`, in a few words, or None when there can."""
    if shutil.which("slurmrestd", path=slurm.env["PATH"]) is None:
        return "slurmrestd is not installed; tests/install_packages.sh installs it"
    if not slurm.release.has_plugin("auth_jwt"):
        return "slurm-wlm-jwt-plugin is not installed; tests/install_packages.sh installs it"
    return None


def rest_client(
    slurm: SlurmCluster, url: str, *, user: str = "root", timeout_s: float = DEFAULT_TIMEOUT_S
) -> RestClient:
    """Return a client of the slurmrestd at `url`, with tokens for `user` from ``scontrol token``."""
    runner = LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf))
    command = ("scontrol", "token", f"username={user}", "lifespan=3600")
    tokens = TokenKeeper(token_command(command, runner))
    return RestClient(RestServer(url), tokens, timeout_s=timeout_s)


class Slurmrestd:
    """One slurmrestd, always at the same addresses."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self._slurm = slurm
        (port,) = free_ports(1)
        self._host = f"127.0.0.1:{port}"
        self._socket = slurm.directory / "rest" / "slurmrestd.sock"
        # slurmrestd, not being root, must be able to make its socket there.
        self._socket.parent.mkdir()
        shutil.chown(self._socket.parent, "daemon")

    @property
    def tcp(self) -> str:
        """Its address over TCP."""
        return f"http://{self._host}"

    @property
    def unix(self) -> str:
        """Its address as a Unix socket."""
        return f"unix:{self._socket}"

    def start(self) -> None:
        """Start it (again)."""
        self._socket.unlink(missing_ok=True)
        self._slurm.start_slurmrestd(self.unix, self._host)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._slurm._end("slurmrestd", signal.SIGKILL)
