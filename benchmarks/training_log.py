"""Lines of a training log as Megatron-LM prints them, for benchmarks that don't run a training."""

from __future__ import annotations

from datetime import datetime

CHECKPOINT_EVERY = 50
_BATCH_SIZE = 512


def iteration_lines(iteration: int, *, step_s: float = 1.0) -> str:
    """Return what a job prints when `iteration` is done: its line, and at times those of a checkpoint."""
    lines = (
        f" [{datetime.now().astimezone():%Y-%m-%d %H:%M:%S.%f}] iteration {iteration:8d}/  500000 |"
        f" consumed samples: {iteration * _BATCH_SIZE:12d} | elapsed time per iteration (ms): {step_s * 1000:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 3.000000E-04 |"
        f" global batch size: {_BATCH_SIZE:5d} |"
        f" lm loss: {2 + 8 / iteration:.6E} | loss scale: 1.0 | grad norm: 0.{iteration % 900 + 100} |"
        f" number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )
    if iteration % CHECKPOINT_EVERY == 0:
        lines += (
            f"saving checkpoint at iteration {iteration:7d} to /scratch/ckpt in torch_dist format\n"
            f"  successfully saved checkpoint from iteration {iteration:7d} to /scratch/ckpt [ t 1/8, p 1/4 ]\n"
        )
    return lines


def crashed_log(*, iterations: int) -> str:
    """Return the log of a job that lost a GPU after `iterations`."""
    healthy = "".join(iteration_lines(iteration) for iteration in range(1, iterations + 1))
    return (
        healthy
        + "node07: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
        + "[rank7]: RuntimeError: CUDA error: unspecified launch failure\n"
        + "srun: error: node07: task 7: Exited with exit code 1\n"
    )
