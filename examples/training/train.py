"""A small training program for trying recovery: one process a node, checkpoints, and faults on request.

It fits one weight by gradient descent, with a real all-reduce between the ranks at each iteration, and prints what
Megatron-LM prints: iteration lines from the last rank, checkpoint lines from rank 0. `srun` starts it, or the simulated
cluster with the same environment variables. It needs Python 3.9 and nothing else.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import sys
import time
import traceback
import zlib
from datetime import datetime
from pathlib import Path

from collective import ProcessGroup, init_process_group

SAMPLES_PER_RANK = 4
LEARNING_RATE = 1e-1
TARGET = 2.0
TOKENIZER_OFFSETS = {"web": 0, "books": 32_000, "code": 64_000}
FIRST_ATTEMPT_ONLY = ("hang", "segfault")


def main() -> None:
    """Train from the last checkpoint to the last iteration."""
    options = parse_options()
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    world_size = int(os.environ.get("SLURM_NTASKS", "1"))
    node = os.environ.get("SLURMD_NODENAME", "localhost")
    sys.excepthook = lambda _kind, error, _trace: print_exception(rank, error)
    faulthandler.enable()

    port = int(os.environ.get("MASTER_PORT", "0")) or default_port(options.checkpoint_dir)
    group = init_process_group(rank, world_size, node, os.environ.get("MASTER_ADDR", "127.0.0.1"), port)
    iteration, weight = load_checkpoint(options.checkpoint_dir, rank)
    while iteration < options.iterations:
        started = time.monotonic()
        iteration += 1
        if fault_strikes(options, node, rank, world_size, iteration):
            strike(options)
        weight, loss, gradient = train_step(group, world_size, weight, iteration, options.step_s)
        if rank == world_size - 1:
            print_iteration(iteration, options.iterations, world_size, time.monotonic() - started, loss, gradient)
        if rank == 0 and iteration % options.checkpoint_every == 0:
            save_checkpoint(options.checkpoint_dir, iteration, weight)
    if rank == 0:
        say(f"[after training is done] datetime: {datetime.now().astimezone():%Y-%m-%d %H:%M:%S} ")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.25, help="seconds of computing per iteration")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="iterations between two checkpoints")
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("ckpt"))
    parser.add_argument("--fault", choices=["none", "xid79", "hang", "keyerror", "segfault"], default="none")
    parser.add_argument("--fault-node", default="", help="where it strikes (default: the node of rank 1)")
    parser.add_argument("--fault-iteration", type=int, default=25, help="from which iteration on it strikes")
    parser.add_argument(
        "--fault-attempts",
        choices=["first", "always"],
        help="default: the first attempt for hang and segfault, every attempt for xid79 and keyerror",
    )
    parser.add_argument(
        "--fault-linger-s", type=float, default=0.0, help="seconds that a process lives on without its GPU (xid79)"
    )
    options = parser.parse_args()
    if options.fault == "xid79" and not options.fault_node:
        parser.error("--fault xid79 needs --fault-node: a broken GPU sits in one node, whatever rank runs there")
    if options.fault_attempts is None:
        options.fault_attempts = "first" if options.fault in FIRST_ATTEMPT_ONLY else "always"
    return options


def default_port(checkpoint_dir: Path) -> int:
    """Return a port between 10000 and 19999: another one for each job and attempt of a cluster, and most likely for
    each directory, because the nodes of several test clusters may all be this one host."""
    job, attempt = int(os.environ.get("SLURM_JOB_ID", "0")), int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    directory = zlib.crc32(str(checkpoint_dir.absolute().parent).encode())
    return 10_000 + (directory + 10 * job + attempt) % 10_000


def train_step(
    group: ProcessGroup, world_size: int, weight: float, iteration: int, step_s: float
) -> tuple[float, float, float]:
    """Compute for `step_s` seconds, reduce the gradient over all ranks; return the new weight, the loss, the norm."""
    time.sleep(step_s)
    noise = random.Random(iteration * 1_000 + group.rank).gauss(0.0, 0.05)
    gradient = group.all_reduce(weight - TARGET + noise) / world_size
    return weight - LEARNING_RATE * gradient, 0.5 * gradient**2 + 1.7, abs(gradient)


def load_checkpoint(directory: Path, rank: int) -> tuple[int, float]:
    """Return iteration and weight of the last finished checkpoint, or the start of a new training."""
    tracker = directory / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        print_rank_0(rank, f"WARNING: could not find the metadata file {tracker}")
        print_rank_0(rank, "    will not load any checkpoints and will start from random")
        return 0, 0.0
    iteration = int(tracker.read_text())
    print_rank_0(rank, f" loading distributed checkpoint from {directory} at iteration {iteration}")
    state = json.loads((directory / f"iter_{iteration:07d}.json").read_text())
    print_rank_0(rank, f"  successfully loaded checkpoint from {directory} [ t 0/1, p 0/1 ] at iteration {iteration}")
    return state["iteration"], state["weight"]


def save_checkpoint(directory: Path, iteration: int, weight: float) -> None:
    """Write a checkpoint, then name it the latest: a kill between the two leaves the one before in force."""
    say(f"saving checkpoint at iteration {iteration:7d} to {directory} in torch_dist format")
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / f"iter_{iteration:07d}.json", json.dumps({"iteration": iteration, "weight": weight}))
    write_atomically(directory / "latest_checkpointed_iteration.txt", str(iteration))
    say(f"  successfully saved checkpoint from iteration {iteration:7d} to {directory} [ t 1/1, p 1/1 ]")


def write_atomically(path: Path, text: str) -> None:
    """Replace the file as a whole, or leave it as it was."""
    beside = path.with_suffix(".tmp")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def fault_strikes(options: argparse.Namespace, node: str, rank: int, world_size: int, iteration: int) -> bool:
    """Whether this process is to fail now. A user's bug is in every rank; the other faults sit on one node."""
    if options.fault == "none" or iteration < options.fault_iteration:
        return False
    if options.fault_attempts == "first" and os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
        return False
    if options.fault == "keyerror":
        return True
    return node == options.fault_node if options.fault_node else rank == 1 % world_size


def strike(options: argparse.Namespace) -> None:
    """Fail in the way that was asked for; does not return."""
    if options.fault == "keyerror":
        encode_sample({"source": "forum", "tokens": [17, 4, 99]})
    if options.fault == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if options.fault == "hang":
        while True:
            time.sleep(3600)
    say("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    time.sleep(options.fault_linger_s)
    raise RuntimeError("CUDA error: unspecified launch failure")


def encode_sample(sample: dict) -> list[int]:  # type: ignore[type-arg]
    """Shift a sample's tokens to its tokenizer's range."""
    offset = TOKENIZER_OFFSETS[sample["source"]]
    return [offset + token for token in sample["tokens"]]


def print_iteration(
    iteration: int, iterations: int, world_size: int, elapsed_s: float, loss: float, gradient: float
) -> None:
    """Print the line that Megatron-LM prints after each logged iteration."""
    batch_size = SAMPLES_PER_RANK * world_size
    say(
        f" [{datetime.now().astimezone():%Y-%m-%d %H:%M:%S.%f}] iteration {iteration:8d}/{iterations:8d} |"
        f" consumed samples: {iteration * batch_size:12d} | elapsed time per iteration (ms): {elapsed_s * 1000:.1f} |"
        f" learning rate: {LEARNING_RATE:.6E} | global batch size: {batch_size:5d} | lm loss: {loss:.6E} |"
        f" loss scale: 1.0 | grad norm: {gradient:.3f} | number of skipped iterations:   0 |"
        f" number of nan iterations:   0 |"
    )


def print_exception(rank: int, error: BaseException) -> None:
    """Print a traceback as torch does: each line behind the rank, in one write so that ranks do not mix."""
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in lines))
    sys.stderr.flush()


def print_rank_0(rank: int, line: str) -> None:
    """Print a line that one rank prints for all."""
    if rank == 0:
        say(line)


def say(line: str) -> None:
    """Print one line at once, as a single write: several ranks share one file."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
