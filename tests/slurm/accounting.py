"""A real cluster that keeps accounts: a slurmdbd and its MariaDB beside the other daemons, in the same directory."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.slurm.cluster import COMMAND_TIMEOUT_S, SlurmCluster, free_ports

NEEDED_COMMANDS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd")
SYSTEM_TABLES = tuple(
    Path("/usr/share/mysql") / name
    for name in ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
)


def why_no_accounts() -> str | None:
    """Return why accounting cannot run here, in a few words, or None when it can."""
    missing = [command for command in NEEDED_COMMANDS if shutil.which(command) is None]
    if missing or not all(path.exists() for path in SYSTEM_TABLES):
        return f"slurmdbd or MariaDB is not installed ({', '.join(missing)}); tests/install_packages.sh installs them"
    return None


class AccountedCluster(SlurmCluster):
    """A cluster whose slurmctld tells a slurmdbd of all jobs, with their comments."""

    def restart_slurmctld(self) -> None:
        """Start slurmdbd first where it does not run yet: a new slurmctld wants it for its first start."""
        if "mariadb" not in self._daemons:
            self._start_mariadb()
            self.restart_slurmdbd()
            self.run("sacctmgr", "--immediate", "add", "cluster", "relight-test")
        super().restart_slurmctld()

    def stop(self) -> None:
        """End everything: slurmdbd and MariaDB once slurmctld, which tells them its last news, is gone."""
        for name in ("slurmctld", "slurmdbd", "mariadb"):
            self._end(name, signal.SIGTERM)
        super().stop()

    def _rest_plugins(self) -> tuple[str, ...]:
        return (*super()._rest_plugins(), "slurmdbd" if self.release.version >= (23, 11) else "dbv0.0.38")

    def kill_slurmdbd(self) -> None:
        """Kill slurmdbd with SIGKILL: slurmctld goes on, and keeps what it has to tell."""
        self._end("slurmdbd", signal.SIGKILL)

    def restart_slurmdbd(self) -> None:
        """Start slurmdbd (again) and return once it answers."""
        self._spawn("slurmdbd", ["slurmdbd", "-D"])
        self._answers("slurmdbd", "sacctmgr", "--noheader", "show", "cluster")

    def _start_mariadb(self) -> None:
        # The slurmd will listen on the ports in the configuration, and do not yet.
        taken = self.conf.read_text()
        port, dbd_port = [port for port in free_ports(20) if str(port) not in taken][:2]
        data = self.directory / "mariadb"
        data.mkdir()
        server = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}"]
        tables = "".join(path.read_text() for path in SYSTEM_TABLES)
        subprocess.run(
            [*server, "--bootstrap", "--skip-networking"],
            input=f"create database mysql;\nuse mysql;\n{tables}",
            text=True,
            check=True,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        address = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={self.directory}/mariadb.socket"]
        pid_file = f"--pid-file={self.directory}/mariadb.pid"
        self._spawn("mariadb", [*server, *address, "--skip-grant-tables", pid_file])
        self._answers("mariadb", "bash", "-c", f"</dev/tcp/127.0.0.1/{port}")
        self._write_accounting_conf(port, dbd_port)

    def _write_accounting_conf(self, port: int, dbd_port: int) -> None:
        munge = f"{self.directory}/munge.socket"
        dbd_conf = self.directory / "slurmdbd.conf"
        dbd_conf.touch(0o600)
        key = self.directory / "jwt.key"
        # slurmrestd hands its callers' tokens on.
        tokens = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n" if key.exists() else ""
        dbd_conf.write_text(
            f"""AuthType=auth/munge
AuthInfo=socket={munge}
{tokens}DbdHost={socket.gethostname().split(".")[0]}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=root
StorageLoc=slurm_acct_db
LogFile={self.directory}/log/slurmdbd.log
PidFile={self.directory}/slurmdbd.pid
"""
        )
        # To slurmdbd, the munge socket goes by the name of a password.
        self.conf.write_text(
            self.conf.read_text().replace(
                "AccountingStorageType=accounting_storage/none",
                f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={munge}
AccountingStoreFlags=job_comment,job_script""",
            )
        )

    def _answers(self, daemon: str, *command: str) -> None:
        def succeeds() -> bool:
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
            return done.returncode == 0

        self._poll([daemon], succeeds, lambda: f"{daemon} did not start: {self.log_tail(daemon)}")
