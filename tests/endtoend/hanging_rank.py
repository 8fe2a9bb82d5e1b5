"""A rank that hangs at iteration 12 of its first attempt. Upon SIGTERM it does nothing (``ignore``), or rank 0 writes
what it has as a checkpoint and all exit with 0 (``checkpoint``). It prints what Megatron-LM prints."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

HANGS_AT, LAST, EVERY, STEP_S = 12, 20, 10, 0.2
RANK, ATTEMPT = int(os.environ["SLURM_PROCID"]), int(os.environ.get("SLURM_RESTART_COUNT", "0"))
CHECKPOINT = Path(f"checkpoint-{os.environ['SLURM_JOB_ID']}")


def main() -> None:
    iteration = load()
    signal.signal(signal.SIGTERM, lambda *_: None)
    while iteration < LAST:
        iteration += 1
        if sys.argv[1] == "checkpoint":
            signal.signal(signal.SIGTERM, partial(leave, iteration - 1))
        if ATTEMPT == 0 and iteration == HANGS_AT:
            say(f"rank {RANK} hangs at iteration {iteration}")
            all_reduce(600)
        time.sleep(STEP_S)
        if RANK == 0:
            say(f" iteration {iteration:8d}/{LAST:8d} | elapsed time per iteration (ms): 200.0 |")
            if iteration % EVERY == 0:
                save(iteration)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def all_reduce(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)


def load() -> int:
    if not CHECKPOINT.exists():
        return 0
    iteration = int(CHECKPOINT.read_text())
    if RANK == 0:
        say(f"  successfully loaded checkpoint from ckpt [ t 0/1, p 0/1 ] at iteration {iteration}")
    return iteration


def save(iteration: int) -> None:
    CHECKPOINT.write_text(str(iteration))
    say(f"  successfully saved checkpoint from iteration {iteration:7d} to ckpt [ t 1/1, p 1/1 ]")


def leave(iteration: int, *_: object) -> None:
    if RANK == 0:
        save(iteration)
    sys.exit(0)


main()
