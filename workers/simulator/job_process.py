"""The processes of one attempt: started, labelled, watched and ended as srun and slurmstepd do, in their words."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from datetime import datetime
from typing import BinaryIO

from recovery.model import Value
from workers.simulator.cluster import Launch, Termination, Timing

# What Slurm reports when the output file cannot be opened: signal 53.
OUTPUT_NOT_WRITABLE = 53
NOT_EXECUTABLE = 2
PR_SET_PDEATHSIG = 1
READ_BYTES = 65_536
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Outcome(Value):
    """How an attempt ended, as the job's ExitCode says it."""

    exit_code: int = 0
    exit_signal: int = 0


class JobProcess:
    """One attempt: one process on each of its nodes, each in a process group of its own."""

    def __init__(self, launch: Launch, timing: Timing, *, cluster_name: str) -> None:
        self._launch = launch
        self._timing = timing
        self._cluster_name = cluster_name
        self._processes: dict[int, Process] = {}
        self._told_to_end = asyncio.Event()
        self._lost_node = ""
        self._output: BinaryIO | None = None

    async def run(self) -> Outcome:
        """Run the attempt to its end. The exit code is srun's: the highest of all tasks'."""
        try:
            self._output = self._open_output()
        except OSError:
            return Outcome(exit_signal=OUTPUT_NOT_WRITABLE)
        ender = asyncio.create_task(self._end_when_told())
        try:
            tasks = [self._run_task(rank) for rank in range(len(self._launch.nodes))]
            return Outcome(exit_code=max(await asyncio.gather(*tasks)))
        finally:
            ender.cancel()
            self._signal_all(signal.SIGKILL)
            self._output.close()

    def terminate(self, order: Termination) -> None:
        """End the attempt: SIGTERM to all processes, SIGKILL after a while. A lost node's die at once."""
        self._lost_node = order.lost_node
        if order.lost_node:
            self._say(f"srun: error: Node failure on {order.lost_node}")
            self._signal(self._launch.nodes.index(order.lost_node), signal.SIGKILL)
        if self._told_to_end.is_set():
            return
        if order.said:
            self._say(order.said)
        self._say("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
        self._say(self._cancelled(f"JOB {self._launch.number}", order.why))
        self._say(self._cancelled(f"STEP {self._launch.number}.0", order.why))
        self._told_to_end.set()

    # --- one task -------------------------------------------------------------------------------------------------

    async def _run_task(self, rank: int) -> int:
        node = self._launch.nodes[rank]
        # A pipe of our own: asyncio's would keep `Process.wait` waiting for what a task left behind.
        read_end, write_end = os.pipe()
        relay = asyncio.create_task(self._relay(rank, read_end))
        try:
            process = await asyncio.create_subprocess_exec(
                *self._launch.spec.argv,
                cwd=self._launch.stdout.parent,
                env=self._environment(rank),
                stdin=DEVNULL,
                stdout=write_end,
                stderr=STDOUT,
                process_group=0,
                preexec_fn=_die_with_parent if LIBC else None,
            )
        except OSError as error:
            self._say(f"slurmstepd-{node}: error: execve(): {self._launch.spec.argv[0]}: {error.strerror}")
            return self._task_ended(rank, NOT_EXECUTABLE)
        finally:
            os.close(write_end)
        self._processes[rank] = process
        if self._told_to_end.is_set():
            self._signal(rank, signal.SIGTERM)
        code = await process.wait()
        # What it left behind ends with it, and with that the pipe.
        self._signal(rank, signal.SIGKILL)
        del self._processes[rank]
        await relay
        return self._task_ended(rank, code)

    async def _relay(self, rank: int, read_end: int) -> None:
        """Copy whole lines from a task to the job's output, until the pipe's other end is closed."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        label = f"{rank}: ".encode() if self._launch.spec.label else b""
        rest = b""
        while part := await reader.read(READ_BYTES):
            *lines, rest = (rest + part).split(b"\n")
            self._write(b"".join(label + line + b"\n" for line in lines))
        if rest:
            self._write(label + rest + b"\n")

    def _task_ended(self, rank: int, code: int) -> int:
        """Report a bad exit and, unless the job is being ended already, have the other tasks ended for it."""
        node = self._launch.nodes[rank]
        if code == 0 or node == self._lost_node:
            return code if code >= 0 else 128 - code
        how = _signal_words(-code) if code < 0 else f"Exited with exit code {code}"
        self._say(f"srun: error: {node}: task {rank}: {how}")
        if not self._told_to_end.is_set():
            asyncio.get_running_loop().call_later(self._timing.bad_exit_wait_s, self._abort_step)
        return code if code > 0 else 128 - code

    def _abort_step(self) -> None:
        if self._told_to_end.is_set() or not self._processes:
            return
        self._say(f"srun: launch/slurm: _step_signal: Terminating StepId={self._launch.number}.0")
        self._say(self._cancelled(f"STEP {self._launch.number}.0", ""))
        self._told_to_end.set()

    # --- all tasks ------------------------------------------------------------------------------------------------

    async def _end_when_told(self) -> None:
        await self._told_to_end.wait()
        self._signal_all(signal.SIGTERM)
        await asyncio.sleep(self._timing.kill_wait_s)
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for rank in self._processes:
            self._signal(rank, number)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        process = self._processes.get(rank)
        if process is None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return

    # --- the output -----------------------------------------------------------------------------------------------

    def _open_output(self) -> BinaryIO:
        return self._launch.stdout.open("ab" if self._launch.spec.append else "wb", buffering=0)

    def _say(self, line: str) -> None:
        self._write(line.encode() + b"\n")

    def _write(self, data: bytes) -> None:
        if self._output is not None and not self._output.closed and data:
            self._output.write(data)

    def _cancelled(self, what: str, why: str) -> str:
        # Slurm prints local time without a zone.
        now = datetime.now().astimezone().strftime("%Y-%m-%dT%H:%M:%S")
        node = self._launch.nodes[0]
        return f"slurmstepd-{node}: error: *** {what} ON {node} CANCELLED AT {now} {why + ' ' if why else ''}***"

    def _environment(self, rank: int) -> dict[str, str]:
        launch = self._launch
        count = str(len(launch.nodes))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", "/"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **launch.spec.environment,
            "SLURM_CLUSTER_NAME": self._cluster_name,
            "SLURM_JOB_ID": str(launch.number),
            "SLURM_JOB_NAME": launch.spec.name,
            "SLURM_JOB_NODELIST": ",".join(launch.nodes),
            "SLURM_JOB_NUM_NODES": count,
            "SLURM_NNODES": count,
            "SLURM_NTASKS": count,
            "SLURM_NODEID": str(rank),
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": "0",
            "SLURM_SUBMIT_DIR": str(launch.stdout.parent),
            "SLURMD_NODENAME": launch.nodes[rank],
        }
        if launch.restart_count:
            environment["SLURM_RESTART_COUNT"] = str(launch.restart_count)
        if launch.array_job_id:
            environment["SLURM_ARRAY_JOB_ID"] = launch.array_job_id
            environment["SLURM_ARRAY_TASK_ID"] = str(launch.array_task_id)
        return environment


def _signal_words(number: int) -> str:
    return signal.strsignal(number) or f"Signal {number}"


def _die_with_parent() -> None:
    """Have Linux kill the process when the cluster's process is killed: a dead cluster runs no jobs."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
