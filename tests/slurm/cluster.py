"""A real Slurm cluster on this one host: slurmctld, eight slurmd and a munged of its own, all as root, without cgroups.
It runs this host's own Slurm, or another release from a folder (`SlurmRelease`), where all else stays the same.

Everything lives in one directory under /tmp and on ports chosen at the start, so that several clusters can run at once.
The daemons die with the process that started them (parent death signal), and what a killed run left behind (job steps,
its directory) is swept by the next start: a directory whose lock nobody holds belongs to a dead run.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from tests.slurm.conf import slurm_conf
from tests.slurm.processes import end_processes_marked
from tests.slurm.release import SlurmRelease

NODES = tuple(f"node{number:02}" for number in range(1, 9))
NEEDED_COMMANDS = ("slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo", "scancel", "munged", "mungekey")
READY_TIMEOUT_S = 60.0
START_TRIES = 3
COMMAND_TIMEOUT_S = 30.0
CLEAR_PATIENCE_S = 30.0
OWN_RELEASE = SlurmRelease()
# From here on slurmd refuses to start where cgroups cannot be used, unless it is told to do without.
NEEDS_NO_CGROUPS_TOLD = (23, 11)
# Below Linux's ephemeral ports, so that no outgoing connection takes the port of a daemon that is to be restarted.
PORTS = range(20_000, 32_000)
_PREFIX = "relight-slurm-"


class ClusterFailed(Exception):
    """The cluster under test did not do what it was told; the message carries the command's or daemon's own words."""


class DaemonEnded(ClusterFailed):
    """A daemon of the cluster ended by itself, as where another program took its port before it did."""


def why_unavailable(release: SlurmRelease = OWN_RELEASE) -> str | None:
    """Return why no real cluster can run here, in a few words, or None when one can."""
    if os.geteuid() != 0:
        return "not running as root"
    missing = [command for command in NEEDED_COMMANDS if shutil.which(command) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)} not found); tests/install_packages.sh installs it"
    return release.why_missing()


class SlurmCluster:
    """One cluster: `start` it, use it, `stop` it.

    Nodes are ``node01`` to ``node08`` in the partitions ``main`` (default) and ``other``, with 4 CPUs each. A node
    whose slurmd is silent for `slurmd_timeout_s` seconds is DOWN; ended jobs stay listed for 300 s.
    """

    def __init__(
        self, release: SlurmRelease = OWN_RELEASE, *, slurmd_timeout_s: int = 15, extra_conf: str = ""
    ) -> None:
        self.release = release
        self.slurmd_timeout_s = slurmd_timeout_s
        self.extra_conf = extra_conf
        self.directory = Path()
        self._lock: IO[str] | None = None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def conf(self) -> Path:
        """The cluster's slurm.conf; Slurm's commands need it as SLURM_CONF."""
        return self.directory / "slurm.conf"

    @property
    def commands(self) -> Path:
        """A directory with this release's commands, to be searched before all others; empty for the host's own."""
        return self.directory / "commands"

    @property
    def env(self) -> dict[str, str]:
        """The environment in which Slurm's commands, and programs that call them, speak to this cluster."""
        return {
            "PATH": f"{self.commands}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}",
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.conf),
        }

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every daemon and return once all nodes are idle. Call it from the main thread: the daemons get a
        signal when the thread that started them ends."""
        sweep_dead_clusters()
        for _ in range(START_TRIES - 1):
            try:
                return self._start()
            except DaemonEnded:
                continue
        return self._start()

    def _start(self) -> None:
        self.directory, self._lock = _directory_of_our_own()
        self.directory.chmod(0o755)
        for folder in ("state", "spool", "log", "work"):
            (self.directory / folder).mkdir()
        self.release.write_commands(self.commands)
        self._write_conf()
        try:
            self._start_munged()
            self.restart_slurmctld()
            for node in NODES:
                self.restart_slurmd(node)
            self.wait_until_idle()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all jobs and daemons of this cluster, and nothing else, and remove its directory."""
        if self._lock is None:
            return
        for name in ["slurmrestd", *NODES, "slurmctld", "munged"]:
            self._end(name, signal.SIGTERM)
        end_processes_of(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock.close()
        self._lock = None

    def _write_conf(self) -> None:
        ports = free_ports(len(NODES) + 1)
        jwt = self.release.has_plugin("auth_jwt")
        if jwt:
            (self.directory / "jwt.key").touch(0o600)
            (self.directory / "jwt.key").write_bytes(os.urandom(32))
        self.conf.write_text(
            slurm_conf(
                self.directory,
                controller_port=ports[0],
                node_ports=dict(zip(NODES, ports[1:], strict=True)),
                slurmd_timeout_s=self.slurmd_timeout_s,
                jwt=jwt,
                extra_conf=self.extra_conf,
            )
        )
        if self.release.version >= NEEDS_NO_CGROUPS_TOLD:
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _start_munged(self) -> None:
        key = self.directory / "munge.key"
        socket_path = self.directory / "munge.socket"
        subprocess.run(["mungekey", "-c", "-f", "-k", str(key)], check=True, timeout=COMMAND_TIMEOUT_S)
        self._spawn(
            "munged",
            ["munged", "-F", "--force", f"--socket={socket_path}", f"--key-file={key}"]
            + [f"--{name}-file={self.directory}/munged.{name}" for name in ("pid", "seed", "log")],
        )
        self._poll(["munged"], socket_path.exists, lambda: f"munged did not start: {self.log_tail('munged')}")

    def wait_until_idle(self) -> None:
        """Return once no node does anything."""

        def idle() -> bool:
            answer = subprocess.run(
                ["sinfo", "-h", "-N", "-p", "main", "-o", "%T"],
                env=self.env,
                capture_output=True,
                text=True,
                timeout=30,
            )
            return answer.stdout.split() == ["idle"] * len(NODES)

        self._poll(NODES, idle, lambda: f"the nodes did not become idle: {self.log_tail('slurmctld')}")

    @property
    def scheduler_settings(self) -> dict[str, str]:
        """The section of relight.yaml that names it, by its commands on this host."""
        return {"kind": "cli", "bin_dir": str(self.commands), "slurm_conf": str(self.conf)}

    def clear(self) -> None:
        """Cancel what still waits or runs, and give it a while to be gone."""
        active = ["squeue", "--noheader", "--states=PENDING,RUNNING,SUSPENDED,COMPLETING", "--format=%A"]
        deadline = time.monotonic() + CLEAR_PATIENCE_S
        while time.monotonic() < deadline:
            listed = subprocess.run(active, env=self.env, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
            jobs = listed.stdout.split()
            if not jobs:
                return
            subprocess.run(["scancel", *jobs], env=self.env, capture_output=True, timeout=COMMAND_TIMEOUT_S)
            time.sleep(0.3)

    # --- faults ---------------------------------------------------------------------------------------------------

    def kill_slurmctld(self) -> None:
        """Kill the controller with SIGKILL: commands get no answer, running jobs go on. What changed in the last five
        seconds may not be in its saved state: after the restart such a change never happened."""
        self._end("slurmctld", signal.SIGKILL)

    def restart_slurmctld(self) -> None:
        """Start the controller (again) from its saved state and return once it answers and knows its nodes."""
        self._end("slurmctld", signal.SIGTERM)
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])

        def answers() -> bool:
            ping = subprocess.run(["scontrol", "ping"], env=self.env, capture_output=True, text=True, timeout=30)
            return "is UP" in ping.stdout

        def nodes_registered() -> bool:
            return all(self.node_state(node) != "unknown" for node in NODES if node in self._daemons)

        self._poll(["slurmctld"], answers, lambda: f"slurmctld did not start: {self.log_tail('slurmctld')}")
        self._poll(["slurmctld"], nodes_registered, lambda: f"the nodes are not registered: {self.run('sinfo')}")

    def kill_slurmd(self, node: str) -> None:
        """Kill one node's slurmd with SIGKILL, with the job steps that it runs: the node died. It is DOWN after
        SlurmdTimeout, and Slurm requeues its jobs by itself."""
        # Stopped before it is killed: a dead slurmd refuses connections, and a step that is just starting there would
        # end its job with an error before it is found.
        self._daemons[node].send_signal(signal.SIGSTOP)
        marks = {f"SLURM_CONF={self.conf}".encode(), f"SLURMD_NODENAME={node}".encode()}
        end_processes_marked(marks)
        self._end(node, signal.SIGKILL)

    def kill_slurmd_alone(self, node: str) -> None:
        """Kill one node's slurmd with SIGKILL; the job steps that it started go on."""
        self._end(node, signal.SIGKILL)

    def restart_slurmd(self, node: str) -> None:
        """Start one node's slurmd (again); it registers within seconds."""
        self._end(node, signal.SIGTERM)
        self._spawn(node, ["slurmd", "-D", "-N", node, "-f", str(self.conf)])

    def stall_slurmctld(self) -> None:
        """Stop the controller (SIGSTOP): it accepts connections and never answers, until `continue_slurmctld`."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def continue_slurmctld(self) -> None:
        """Let a stalled controller go on."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    # --- use ------------------------------------------------------------------------------------------------------

    def run(self, *command: str, stdin: str = "") -> str:
        """Run one of Slurm's commands against this cluster and return what it printed; `ClusterFailed` if it fails."""
        done = subprocess.run(
            command,
            input=stdin,
            env=self.env,
            cwd=self.directory / "work",
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        if done.returncode:
            raise ClusterFailed(f"{' '.join(command)} exited with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def sbatch(self, script: str, *options: str) -> str:
        """Submit a batch script given as text and return the job's id. It runs in ``directory / "work"``, where its
        output is ``slurm-<id>.out`` unless the options say otherwise."""
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
        return self.run("sbatch", "--parsable", *options, stdin=text).strip()

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float, what: str = "") -> None:
        """Ask `predicate` four times a second, without blocking the event loop in between, until it is true."""
        deadline = time.monotonic() + timeout_s
        while not predicate():
            if time.monotonic() > deadline:
                raise ClusterFailed(f"not within {timeout_s:.0f} s: {what or predicate}\n{self.log_tail('slurmctld')}")
            await asyncio.sleep(0.25)

    def field(self, job_id: str, name: str) -> str:
        """Return one field of ``scontrol show job``, such as JobState; the first task's for an array."""
        for word in self.run("scontrol", "-o", "show", "job", job_id).split():
            key, equals, value = word.partition("=")
            if equals and key == name:
                return value
        raise ClusterFailed(f"job {job_id} has no field {name}")

    def node_state(self, node: str) -> str:
        """Return the node's state as ``sinfo`` prints it: ``idle``, ``allocated*``, ``down*`` ..."""
        return self.run("sinfo", "-h", "-n", node, "-p", "main", "-o", "%T").strip()

    def log_tail(self, daemon: str, lines: int = 20) -> str:
        """Return the end of a daemon's log: ``slurmctld``, ``munged``, or a node's name."""
        name = f"slurmd-{daemon}" if daemon in NODES else daemon
        texts = [
            path.read_text(errors="replace")
            for path in (self.directory / "log" / f"{name}.log", self.directory / "log" / f"{daemon}.err")
            if path.exists()
        ]
        return "\n".join("\n".join(texts).splitlines()[-lines:])

    # --- REST -----------------------------------------------------------------------------------------------------

    def start_slurmrestd(self, *options: str) -> int:
        """Start slurmrestd, which takes tokens only, and return its port on 127.0.0.1; `ClusterFailed` where this
        release's plugin for tokens is not installed. `options` are of its command line, such as ``-d v0.0.42``."""
        if not self.release.has_plugin("auth_jwt"):
            raise ClusterFailed(f"Slurm {self.release.name} has no auth/jwt here: install slurm-wlm-jwt-plugin")
        (port,) = free_ports(1)
        command = ["slurmrestd", "-f", str(self.conf), "-s", ",".join(self._rest_plugins()), "-a", "rest_auth/jwt"]
        # It may not be root where root is Slurm's own account, nor (26.05) nobody.
        account = ["-u", "daemon", "-g", "daemon"]
        self._spawn("slurmrestd", [*command, *account, *options, f"127.0.0.1:{port}"], SLURM_JWT="daemon")
        self._poll(
            ["slurmrestd"], lambda: _listens(port), lambda: f"slurmrestd did not start: {self.log_tail('slurmrestd')}"
        )
        return port

    def _rest_plugins(self) -> tuple[str, ...]:
        """Without slurmdbd, slurmrestd refuses to start with the plugin that speaks to it."""
        return ("slurmctld",) if self.release.version >= (23, 11) else ("v0.0.38",)

    def token(self, *, lifespan_s: int = 3600) -> str:
        """Return a token for root, as slurmrestd takes it in X-SLURM-USER-TOKEN."""
        return self.run("scontrol", "token", f"lifespan={lifespan_s}").strip().removeprefix("SLURM_JWT=")

    # --- processes ------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, command: list[str], **variables: str) -> None:
        with (self.directory / "log" / f"{name}.err").open("ab") as err:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                env=self.env | variables,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                start_new_session=True,
            )

    def _poll(self, daemons: Iterable[str], done: Callable[[], bool], complaint: Callable[[], str]) -> None:
        """Wait until `done`, which is up to `daemons`, and no longer once one of them has ended."""
        awaited = [(name, self._daemons[name]) for name in daemons if name in self._daemons]
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not done():
            if ended := [name for name, daemon in awaited if daemon.poll() is not None]:
                raise DaemonEnded(f"{ended[0]} ended by itself: {self.log_tail(ended[0])}")
            if time.monotonic() > deadline:
                raise ClusterFailed(complaint())
            time.sleep(0.1)

    def _end(self, name: str, how: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(how)
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(10)


def free_ports(how_many: int) -> list[int]:
    """Return ports on 127.0.0.1 that nobody listens on now."""
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == how_many:
            return ports
    raise ClusterFailed(f"no {how_many} free ports between {PORTS.start} and {PORTS.stop}")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def sweep_dead_clusters() -> None:
    """Remove what clusters of killed test runs left behind: directories whose lock nobody holds."""
    for directory in Path("/tmp").glob(f"{_PREFIX}*"):
        try:
            lock = _hold_lock(directory)
        except OSError:
            continue
        end_processes_of(directory)
        shutil.rmtree(directory, ignore_errors=True)
        lock.close()


def end_processes_of(directory: Path) -> None:
    """Kill every process that was started with the slurm.conf in `directory`: daemons, job steps, batch scripts."""
    end_processes_marked({f"SLURM_CONF={directory}/slurm.conf".encode()})


def _directory_of_our_own() -> tuple[Path, IO[str]]:
    """Make a directory and hold its lock. It gets its name last: another run's sweep would take one without a lock."""
    nameless = Path(tempfile.mkdtemp(prefix=f"new-{_PREFIX}", dir="/tmp"))
    lock = _hold_lock(nameless)
    return nameless.rename(nameless.with_name(nameless.name.removeprefix("new-"))), lock


def _hold_lock(directory: Path) -> IO[str]:
    """Take the directory's lock, which ends with this process; OSError when another process holds it."""
    lock = (directory / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise
    return lock
