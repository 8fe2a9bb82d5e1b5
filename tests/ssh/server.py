"""A real sshd on this host's loopback, with its own keys, authorized_keys file and log, for root alone."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from activities.scheduler.login_host import LoginHost, LoginHosts
from tests.slurm.cluster import SlurmCluster, free_ports

SSHD = "/usr/sbin/sshd"
WRAPPER = Path(__file__).parents[2] / "deploy" / "ssh" / "relight-forced-command"
FORCED_COMMAND = (sys.executable, "-IS", str(WRAPPER))
"""The wrapper, whether or not this host has a python3 where its first line looks for one."""
START_TIMEOUT_S = 30.0


def why_unavailable() -> str | None:
    """Return why no sshd can run here, in a few words, or None when one can."""
    if os.geteuid() != 0:
        return "not running as root"
    if shutil.which(SSHD) is None:
        return "sshd is not installed; tests/install_packages.sh installs it"
    return None


class SshServer:
    """One sshd: `start` it, use it, `stop` it. It dies with this process.

    Two keys get in: ``open_key`` to a login shell, ``key`` to relight's forced command only.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_ports(1)[0]
        self.host = LoginHost(host="127.0.0.1", port=self.port)
        self.key = directory / "key"
        self.open_key = directory / "open_key"
        self.known_hosts = directory / "known_hosts"
        self._daemon: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the keys and the configuration."""
        for key in (self.directory / "host_key", self.key, self.open_key):
            make_key(key)
        host_key = (self.directory / "host_key.pub").read_text().split(" ")[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {' '.join(host_key)}\n")
        self.allow("")
        # At that SHLVL bash reads no .bashrc of this host's, as it does for sshd otherwise.
        (self.directory / "sshd_config").write_text(
            f"""ListenAddress 127.0.0.1
Port {self.port}
HostKey {self.directory}/host_key
AuthorizedKeysFile {self.directory}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
SetEnv SHLVL=2
"""
        )

    def allow(self, wrapper_options: str) -> None:
        """Write authorized_keys anew, the forced command with these options; it counts from the next connection on."""
        forced = f"{shlex.join(FORCED_COMMAND)} {wrapper_options}"
        (self.directory / "authorized_keys").write_text(
            f'restrict,command="{forced}" {public(self.key)}restrict {public(self.open_key)}'
        )

    def serve(self, slurm: SlurmCluster, options: str = "") -> None:
        """Let the forced command speak to this cluster."""
        self.allow(f"--bin {slurm.commands} --slurm-conf {slurm.conf} {options}")

    def scheduler_settings(self) -> dict[str, object]:
        """Return a cluster's ``scheduler:`` that comes in with the forced command's key."""
        return {
            "kind": "ssh",
            "hosts": [str(self.host)],
            "user": "root",
            "known_hosts": str(self.known_hosts),
            "identity_files": [str(self.key)],
        }

    def permit_forwarding(self) -> None:
        """Let the shell's key go through this host to others, from the next connection on."""
        keys = self.directory / "authorized_keys"
        keys.write_text(keys.read_text().replace(f"restrict {public(self.open_key)}", public(self.open_key)))

    def start(self) -> None:
        """Start sshd and return once it listens. Call it from the main thread: it gets a signal when the thread that
        started it ends."""
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.directory / "sshd.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while f"Server listening on 127.0.0.1 port {self.port}" not in self.log():
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"sshd did not start: {self.log()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End sshd with all its connections."""
        if self._daemon is None:
            return
        connections = self.connections()
        self._daemon.kill()
        self._daemon.wait(10)
        self._daemon = None
        for pid in connections:
            _kill(pid)

    def kill_connections(self) -> None:
        """Kill the processes that serve the connections, as an outage would; sshd itself goes on."""
        for pid in self.connections():
            _kill(pid)

    def pause_connections(self) -> None:
        """Let the connections stall: open, and silent."""
        for pid in self.connections():
            os.kill(pid, signal.SIGSTOP)

    def login(self, **changes: Any) -> LoginHosts:
        """Return how relight gets in, to a shell unless `changes` say more."""
        plain: dict[str, Any] = {
            "cluster": "alpha",
            "hosts": (self.host,),
            "user": "root",
            "known_hosts": self.known_hosts,
            "identity_files": (self.open_key,),
        }
        return LoginHosts(**plain | changes)

    def connections(self) -> list[int]:
        """Return the processes that serve the connections."""
        if self._daemon is None:
            return []
        return _children(self._daemon.pid)

    def log(self) -> str:
        """Return all that sshd said."""
        return (self.directory / "sshd.log").read_text(errors="replace")


async def ended(server: SshServer, connections: set[int], *, timeout_s: float = 10) -> bool:
    """Wait for these connections to end, and tell whether they did in time."""
    deadline = time.monotonic() + timeout_s
    while connections & set(server.connections()):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def make_key(path: Path, *, passphrase: str = "") -> None:
    """Make a key pair at `path`."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, timeout=30)


def public(key: Path) -> str:
    """Return the public half as a line."""
    return key.with_name(f"{key.name}.pub").read_text()


def _children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in text.split()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
