"""How an embedded server lives: detached from us, found again by a later start, stopped by its process id.

A server inherits an open, locked file and so holds the lock for exactly as long as it lives. Whoever finds the lock
taken knows that the recorded process id is still the server's own, however its parent ended; nothing is guessed from a
pid that the system may have given to somebody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from workers.errors import OperatorError

LOOPBACK = "127.0.0.1"
POLL_S = 0.1
LOG_TAIL_BYTES = 2_000
OWN_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections, one of which could take a port before the server does."""
PORT_TRIES = 50
START_TRIES = 3


class EmbeddedServerError(OperatorError):
    """An embedded server could not be started, found or stopped."""


class ServerRecord(BaseModel):
    """Where a running server is: what a later start and the command line read."""

    model_config = ConfigDict(frozen=True)

    pid: int
    port: int
    ui_port: int = 0
    """Port of the server's web pages, 0 where it has none."""


@dataclass(frozen=True)
class Account:
    """The system account that a server runs under when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Launch:
    """One server about to be started."""

    command: Sequence[str]
    port: int
    ui_port: int = 0
    account: Account | None = None
    environment: Mapping[str, str] | None = None


def free_port(preferred: int = 0) -> int:
    """Return `preferred` if nothing listens there on 127.0.0.1, else a port that was free a moment ago."""
    tries = random.sample(OWN_PORTS, PORT_TRIES)
    for port in (preferred, *tries) if preferred else tries:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EmbeddedServerError("no free port on 127.0.0.1", "close some programs that listen there and start again")


def chosen_port(configured: int, recorded: int, purpose: str) -> int:
    """Return the configured port, which must be free; for 0 the one used last time if it is free, else any.

    Raises `EmbeddedServerError` when another program has the configured port.
    """
    if not configured:
        return free_port(recorded)
    if free_port(configured) != configured:
        raise EmbeddedServerError(
            f"port {configured} for {purpose} is taken by another program",
            "stop that program, or set another port (0 for any free one) under `embedded` in relight.yaml",
        )
    return configured


class PortTaken(EmbeddedServerError):
    """Another program took a port between our look and the server's start."""


class EmbeddedServer(ABC):
    """A server in its own directory. Also an async context manager: started on entry, stopped on exit.

    `start` adopts a server that an earlier process left running in the same directory, and otherwise starts one on the
    data that is there.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, *, start_timeout_s: float = 60.0, stop_timeout_s: float = 20.0) -> None:
        self.directory = directory.absolute()
        self.adopted = False
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """The server's own output."""
        return self.directory / "server.log"

    @property
    def record(self) -> ServerRecord:
        """Where the running server listens. Raises `EmbeddedServerError` before `start`."""
        record = read_record(self.directory)
        if record is None:
            raise EmbeddedServerError(f"the embedded {self.name} has not been started in {self.directory}")
        return record

    @abstractmethod
    def _prepare(self, last: ServerRecord | None) -> Launch:
        """Make the directory ready and say how to start. May block. `last` is the record of the previous run."""

    @abstractmethod
    async def _answers(self, record: ServerRecord) -> bool:
        """Whether the server at `record` serves requests."""

    @abstractmethod
    async def _settle(self) -> None:
        """Bring a server that answers to the wanted shape; safe to repeat."""

    async def start(self) -> None:
        """Start or adopt the server and wait until it answers.

        Raises `EmbeddedServerError` with the end of the server's log when it does not come up.
        """
        for _ in range(START_TRIES - 1):
            with contextlib.suppress(PortTaken):
                return await self._start_once()
        return await self._start_once()

    async def _start_once(self) -> None:
        try:
            launched = await asyncio.to_thread(self._launch)
        except OSError as error:
            raise EmbeddedServerError(
                f"the embedded {self.name} cannot start in {self.directory}: {error}",
                "set state_dir to a directory of yours on a local disk",
            ) from error
        if launched:
            await self._wait_until_it_answers()
        elif await self._answers_in_time():
            self.adopted = True
        else:
            await self.stop()
            await self.start()
            return
        await self._settle()

    async def stop(self) -> None:
        """End the server, whoever started it, and wait until it has gone. Safe to repeat."""
        record = read_record(self.directory)
        if record is not None and self.is_running():
            if not await self._ended_by(record.pid, self.stop_signal) and not await self._ended_by(
                record.pid, signal.SIGKILL
            ):
                raise EmbeddedServerError(f"the embedded {self.name} (pid {record.pid}) does not end")
        elif self.is_running():
            raise EmbeddedServerError(
                f"an embedded {self.name} runs in {self.directory} without a record of its pid",
                f"find it with `fuser {self._lock_path}` and stop it",
            )
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def is_running(self) -> bool:
        """Whether a server, ours or an earlier process's, lives in this directory."""
        return is_running(self.directory)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def _lock_path(self) -> Path:
        return self.directory / "server.lock"

    def _launch(self) -> bool:
        """Start the server unless one holds the lock; return whether we did."""
        make_directory(self.directory)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            launch = self._prepare(read_record(self.directory))
            # From here until the new record is written there is none: an old pid must never stand for the new server.
            _record_path(self.directory).unlink(missing_ok=True)
            self._process = self._spawn(launch, lock)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        record = ServerRecord(pid=self._process.pid, port=launch.port, ui_port=launch.ui_port)
        written = _record_path(self.directory).with_suffix(".new")
        written.write_text(record.model_dump_json())
        written.replace(_record_path(self.directory))
        return True

    def _spawn(self, launch: Launch, lock: int) -> subprocess.Popen[bytes]:
        account = launch.account
        if self.log_path.exists():
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        with self.log_path.open("wb") as log:
            return subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,
                cwd="/",
                env=launch.environment,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=() if account else None,
            )

    async def _wait_until_it_answers(self) -> None:
        if await self._answers_in_time():
            return
        ended = self._process is not None and self._process.poll() is not None
        await self.stop()
        said = self._log_tail()
        taken = ended and "address already in use" in said.lower()
        raise (PortTaken if taken else EmbeddedServerError)(
            f"the embedded {self.name} {'ended at start' if ended else 'did not answer'}: {said}",
            f"see {self.log_path}",
        )

    async def _answers_in_time(self) -> bool:
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline and self.is_running():
            record = read_record(self.directory)
            if record is not None and await self._answers(record):
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _ended_by(self, pid: int, with_signal: signal.Signals) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, with_signal)
        deadline = time.monotonic() + self._stop_timeout_s
        while time.monotonic() < deadline:
            if not self.is_running():
                return True
            await asyncio.sleep(POLL_S / 2)
        return False

    def _log_tail(self) -> str:
        if not self.log_path.exists():
            return "it wrote no log"
        tail = self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return " / ".join(tail.splitlines()[-3:]) or "it wrote no log"


def make_directory(directory: Path) -> None:
    """Make `directory` and what is missing above it, for other accounts to pass through whatever the umask: what must
    stay closed is closed by itself."""
    for missing in reversed([path for path in (directory, *directory.parents) if not path.exists()]):
        missing.mkdir(exist_ok=True)
        missing.chmod(0o711)


def is_running(directory: Path) -> bool:
    """Whether an embedded server holds the lock of `directory`."""
    try:
        lock = os.open(directory / "server.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def read_record(directory: Path) -> ServerRecord | None:
    """Return what the last start wrote down, None where there was none or it is no longer readable."""
    try:
        return ServerRecord.model_validate_json(_record_path(directory).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _record_path(directory: Path) -> Path:
    return directory / "server.json"
