"""Slurm's commands on a login host, through one ssh connection that all of them share.

sshd hands a command line to the account's login shell, so every word is quoted for a POSIX shell: none is ever
expanded, and none can end its own. With a forced command (deploy/ssh) no shell sees the words at all.

Closing the channel does not end a command on the far side, which keeps its session taken (seen on OpenSSH 9.2). It is
sent SIGKILL, which sshd passes on to its process group, but not to a forced command, and not for root: those end by
Slurm's own time limits, and by the wrapper's.
"""

from __future__ import annotations

import asyncio
import shlex

import asyncssh

from activities.scheduler.command import DEFAULT_TIMEOUT_S, MAX_ANSWER_BYTES, Finished, listen
from activities.scheduler.login_host import LoginHosts
from activities.scheduler.protocol import NotPermitted, Refused, SchedulerUnavailable
from activities.scheduler.ssh_connection import LoginConnection

COMMANDS_AT_ONCE = 8
"""sshd opens ten sessions a connection by default (MaxSessions) and refuses more."""
MAX_COMMAND_BYTES = 120_000
"""Linux takes no single argument of 128 KiB or more (MAX_ARG_STRLEN), and the whole line is one to the login shell."""
WRAPPER_REFUSED = 77
"""The exit code with which deploy/ssh/relight-forced-command refuses a command."""
_NOT_FOUND = 127


class _NotSent(SchedulerUnavailable):
    """The connection had died, or its sessions are taken by commands that do not end: the command never left."""


class SshRunner:
    """Runs commands on whichever login host answers. Implements `activities.scheduler.command.Runner`."""

    def __init__(self, login: LoginHosts, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """`timeout_s`: for each single command, connecting not counted."""
        self._connection = LoginConnection(login)
        self._cluster = login.cluster
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(COMMANDS_AT_ONCE)

    async def run(self, *command: str, stdin: str = "") -> Finished:
        """Run `command` on a login host, with `stdin` as its input.

        Raises `SchedulerUnavailable` when there is no connection, and when it broke or stalled before the command had
        ended: whether it was carried out is unknown then. `NotPermitted` when the far side's forced command refused it.
        """
        line = _command_line(command)
        async with self._slots:
            try:
                finished = await self._run_on(await self._connection.get(), line, command[0], stdin)
            except _NotSent:
                finished = await self._run_on(await self._connection.get(), line, command[0], stdin)
        self._check(finished, command)
        return finished

    async def close(self) -> None:
        """End the connection, with all commands that still run."""
        await self._connection.close()

    async def _run_on(self, connection: asyncssh.SSHClientConnection, line: str, name: str, stdin: str) -> Finished:
        process: asyncssh.SSHClientProcess[bytes] | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                source = asyncssh.PIPE if stdin else asyncssh.DEVNULL
                process = await connection.create_process(line, stdin=source, encoding=None)
                if stdin:
                    process.stdin.write(stdin.encode(errors="replace"))
                    process.stdin.write_eof()
                answer, complaint = await listen(process.stdout, process.stderr, name, MAX_ANSWER_BYTES)
                await process.wait_closed()
        except TimeoutError as error:
            if process is None:
                # sshd confirms a session by itself, however slow the command: the connection is dead.
                self._connection.give_up(connection)
            raise self._no_answer(f"{name} did not answer within {self._timeout_s:g} s") from error
        except asyncssh.ChannelOpenError as error:
            self._connection.give_up(connection)
            raise self._not_opened(name, error) from error
        except (asyncssh.Error, OSError) as error:
            raise self._no_answer(f"the connection broke while {name} ran ({error})") from error
        finally:
            if process is not None:
                _end(process)
        if process.returncode is None:
            raise self._no_answer(f"the connection ended before {name} did")
        return Finished(process.returncode, answer, complaint)

    def _check(self, finished: Finished, command: tuple[str, ...]) -> None:
        """Tell what the far side says of itself from what Slurm says."""
        said = " ".join(finished.stderr.split())[:300]
        if finished.exit_code == WRAPPER_REFUSED:
            raise NotPermitted(
                f"cluster {self._cluster} over ssh: the forced command of relight's key refused"
                f" {' '.join(command[:2])}: {said}; give it the option that allows"
                " this (deploy/ssh/README.md), or install the one that belongs to this release"
            )
        if finished.exit_code == _NOT_FOUND:
            raise self._no_answer(f"{command[0]} is not found on the login host ({said}); put it on the account's PATH")

    def _not_opened(self, name: str, error: asyncssh.ChannelOpenError) -> SchedulerUnavailable:
        if error.code == asyncssh.OPEN_REQUEST_SESSION_FAILED:
            return self._no_answer(f"the connection broke as {name} was sent ({error})")
        return _NotSent(f"cluster {self._cluster} over ssh: no session was opened for {name} ({error})")

    def _no_answer(self, what: str) -> SchedulerUnavailable:
        return SchedulerUnavailable(f"cluster {self._cluster} over ssh: {what}")


def _command_line(command: tuple[str, ...]) -> str:
    line = shlex.join(command)
    size = len(line.encode())
    if "\0" in line:
        raise ValueError("a NUL cannot be part of a command line")
    if size > MAX_COMMAND_BYTES:
        raise Refused(f"{command[0]}: a command line of {size} bytes is too long for ssh; at most {MAX_COMMAND_BYTES}")
    return line


def _end(process: asyncssh.SSHClientProcess[bytes]) -> None:
    if process.returncode is None:
        process.kill()
    process.close()
