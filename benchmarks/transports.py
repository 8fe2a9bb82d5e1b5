"""What ssh adds to each question, beside the same commands on this host."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import LocalRunner, Runner
from activities.scheduler.ssh import SshRunner
from benchmarks.figures import Figure, Report, percentile
from tests.slurm.cluster import SlurmCluster, why_unavailable
from tests.ssh.server import SshServer
from tests.ssh.server import why_unavailable as why_no_sshd

JOBS = 50
ANSWER_BYTES = 20_000_000
ANSWERS = 5


async def measure(calls: int) -> Report:
    """Ask for all jobs `calls` times each way, in turns, and carry a large answer."""
    what = f"{calls} bulk reads of {JOBS} jobs on a real Slurm each way, in turns; sshd on the loopback"
    if reason := why_unavailable() or why_no_sshd():
        return Report("transports", what, skipped=reason)
    with ExitStack() as stack:
        slurm = SlurmCluster()
        slurm.start()
        stack.callback(slurm.stop)
        for _ in range(JOBS):
            slurm.sbatch("sleep 1", "--hold", "--comment={}")
        sshd = SshServer(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relight-sshd-"))))
        sshd.prepare()
        sshd.start()
        stack.callback(sshd.stop)
        return Report("transports", what, await compare(slurm, sshd, calls=calls, answer_bytes=ANSWER_BYTES))


async def compare(slurm: SlurmCluster, sshd: SshServer, *, calls: int, answer_bytes: int) -> tuple[Figure, ...]:
    """Measure both ways to `slurm`, in turns."""
    sshd.serve(slurm)
    here = LocalRunner(bin_dir=str(slurm.commands), slurm_conf=str(slurm.conf))
    forced, shell = SshRunner(sshd.login(identity_files=(sshd.key,))), SshRunner(sshd.login())
    try:
        return (
            *await _questions({"cli": here, "ssh, forced command": forced}, calls),
            *await _answers({"cli": here, "ssh": shell}, _large_answer(sshd.directory, answer_bytes), answer_bytes),
        )
    finally:
        await forced.close()
        await shell.close()


async def _questions(ways: dict[str, Runner], calls: int) -> list[Figure]:
    took_s: dict[str, list[float]] = {way: [] for way in ways}
    for runner in ways.values():
        await SlurmCli(runner).jobs()
    for _ in range(calls):
        for way, runner in ways.items():
            took_s[way].append(await _timed(SlurmCli(runner).jobs))
    return [
        figure
        for way, seconds in took_s.items()
        for figure in (
            Figure(f"{way}: all jobs, median", statistics.median(seconds) * 1_000, "ms"),
            Figure(f"{way}: all jobs, p95", percentile(seconds, 95) * 1_000, "ms"),
        )
    ]


async def _answers(ways: dict[str, Runner], answer: Path, answer_bytes: int) -> list[Figure]:
    figures = []
    for way, runner in ways.items():
        cpu_s = time.process_time()
        seconds = [await _timed(lambda: runner.run("cat", str(answer))) for _ in range(ANSWERS)]  # noqa: B023
        cpu_s = (time.process_time() - cpu_s) / ANSWERS
        beside = f"about {answer_bytes / 1e6:.0f} MB, {ANSWERS} measured"
        figures += [
            Figure(f"{way}: a large answer, median", statistics.median(seconds), "s", beside=beside),
            Figure(f"{way}: a large answer, relight's own CPU", cpu_s, "s"),
        ]
    return figures


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began_s = time.perf_counter()
    await call()
    return time.perf_counter() - began_s


def _large_answer(directory: Path, size_bytes: int) -> Path:
    """Write what a large cluster's squeue might say."""
    path = directory / "answer.json"
    jobs = [
        {
            "job_id": number,
            "name": f"train-{number}",
            "nodes": f"node[{number:05}-{number + 7:05}]",
            "comment": "x" * 80,
        }
        for number in range(size_bytes // 160)
    ]
    path.write_text(json.dumps({"jobs": jobs}))
    return path
