"""One command, run with bounds: no shell, a fixed environment, a time limit and a limit on the answer's size.

`Runner` is all that `activities.scheduler.cli.SlurmCli` asks of the place where Slurm's commands run; `LocalRunner` is
this host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from activities.scheduler.protocol import SchedulerUnavailable

DEFAULT_TIMEOUT_S = 20.0
"""For one command: twice Slurm's own MessageTimeout, within which its commands give up by themselves."""
MAX_ANSWER_BYTES = 128 * 1024 * 1024
MAX_COMPLAINT_BYTES = 16_384
REAP_S = 5.0
OWNERS_ENVIRONMENT = "--get-user-env"
"""sbatch's option for a job that gets its owner's login environment. What sbatch has itself would hide parts of it."""
_CHUNK_BYTES = 65_536
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"


class Finished(NamedTuple):
    """A command that ended by itself."""

    exit_code: int
    stdout: str
    """Bytes that are not UTF-8 are replaced: users put any bytes into a job's name and comment."""
    stderr: str
    """At most `MAX_COMPLAINT_BYTES` of it."""


class Runner(Protocol):
    """A place where Slurm's commands run."""

    async def run(self, *command: str, stdin: str = "") -> Finished:
        """Run `command`, its arguments as they are and `stdin` as its input, and return what it said.

        Raises `SchedulerUnavailable` when it gave no complete answer within the runner's bounds of time and size. It
        may have been carried out all the same: read before repeating it.
        """
        ...


class LocalRunner:
    """Commands on this host, as the account that this process has."""

    def __init__(self, *, bin_dir: str = "", slurm_conf: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """`bin_dir`: where to look for Slurm's commands first; `slurm_conf`: what SLURM_CONF says, empty for Slurm's
        own default; `timeout_s`: for each single command."""
        path = f"{bin_dir}:{_PATH}" if bin_dir else _PATH
        # Times in seconds since 1970, which no zone and no change of the clocks makes ambiguous.
        self._env = {"PATH": path, "LANG": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        self._bare_env = {"SLURM_CONF": slurm_conf} if slurm_conf else {}
        self._env |= self._bare_env
        self._timeout_s = timeout_s

    async def run(self, *command: str, stdin: str = "") -> Finished:
        """Run `command` on this host."""
        env = self._env
        if OWNERS_ENVIRONMENT in command:
            command, env = (shutil.which(command[0], path=env["PATH"]) or command[0], *command[1:]), self._bare_env
        return await run_command(
            command, env=env, timeout_s=self._timeout_s, max_answer_bytes=MAX_ANSWER_BYTES, stdin=stdin
        )


async def run_command(
    command: Sequence[str], *, env: Mapping[str, str], timeout_s: float, max_answer_bytes: int, stdin: str = ""
) -> Finished:
    """Run `command` in its own process group, with `stdin` as its input, and return what it said.

    Raises `SchedulerUnavailable` when it cannot be started, takes longer than `timeout_s` seconds or says more than
    `max_answer_bytes`; its whole process group is killed then, as when the caller is cancelled. A command that was cut
    off may still have been carried out by the scheduler: read before repeating it.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE if stdin else DEVNULL, stdout=PIPE, stderr=PIPE, env=dict(env), start_new_session=True
        )
    except OSError as error:
        raise SchedulerUnavailable(
            f"{command[0]} cannot be started ({error.strerror}): install it on this host, "
            "or correct the setting that says where it is (bin_dir, python)"
        ) from error
    try:
        async with asyncio.timeout(timeout_s):
            return await _finish(process, command[0], max_answer_bytes, stdin)
    except TimeoutError as error:
        raise SchedulerUnavailable(f"{command[0]} did not answer within {timeout_s:g} s") from error
    finally:
        await _kill_group(process)


async def _finish(process: Process, name: str, max_answer_bytes: int, stdin: str) -> Finished:
    feeding = asyncio.create_task(feed(process.stdin, stdin)) if process.stdin else None
    stdout, stderr = cast(asyncio.StreamReader, process.stdout), cast(asyncio.StreamReader, process.stderr)
    try:
        answer, complaint = await listen(stdout, stderr, name, max_answer_bytes)
    finally:
        if feeding is not None:
            feeding.cancel()
    return Finished(await process.wait(), answer, complaint)


async def feed(stdin: asyncio.StreamWriter, text: str) -> None:
    """Write `text` to a command and close its input; a command that does not want it all may end."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(text.encode(errors="replace"))
        await stdin.drain()
    stdin.close()


class ByteStream(Protocol):
    """What a command says, as it says it."""

    async def read(self, n: int) -> bytes:
        """Return at most `n` bytes as soon as there are any, none at the end."""
        ...


async def listen(stdout: ByteStream, stderr: ByteStream, name: str, max_answer_bytes: int) -> tuple[str, str]:
    """Read both streams to their ends and return the answer and the complaint.

    Raises `SchedulerUnavailable` when the answer of the command `name` is longer than `max_answer_bytes`.
    """
    listening = asyncio.create_task(_read_complaint(stderr))
    try:
        answer = await _read_answer(stdout, name, max_answer_bytes)
        complaint = await listening
    finally:
        listening.cancel()
    return answer.decode(errors="replace"), complaint.decode(errors="replace")


async def _read_answer(stream: ByteStream, name: str, max_bytes: int) -> bytearray:
    said = bytearray()
    while chunk := await stream.read(_CHUNK_BYTES):
        said += chunk
        if len(said) > max_bytes:
            raise SchedulerUnavailable(f"{name} answered with more than {max_bytes} bytes: the answer was not read")
    return said


async def _read_complaint(stream: ByteStream) -> bytes:
    said = bytearray()
    while chunk := await stream.read(_CHUNK_BYTES):
        said += chunk[: MAX_COMPLAINT_BYTES - len(said)]
    return bytes(said)


async def _kill_group(process: Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # `wait` also waits for the ends of both streams, and a full stream that nobody reads never comes to its end. What
    # has left the group may keep one open: the command itself is dead all the same.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_S):
            await asyncio.sleep(0)
            await asyncio.gather(
                _discard(cast(asyncio.StreamReader, process.stdout)),
                _discard(cast(asyncio.StreamReader, process.stderr)),
            )
            await process.wait()


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(_CHUNK_BYTES):
        pass
