"""``python -m tests.model --runs N``: N seeded runs of the models; exit code 1 when one breaks a promise."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import structlog

from activities.scheduler import requeue
from tests.model.guarded import play_guarded
from tests.model.resubmitted import play_resubmitted
from tests.protocol.machine import Protocol, WithWindows, play

CHUNK = 500


def _play_protocol(seed: int) -> None:
    play(Protocol, seed)


def _play_with_windows(seed: int) -> None:
    play(WithWindows, seed)


MODELS: dict[str, Callable[[int], None]] = {
    "act": _play_protocol,
    "act, others act between read and call": _play_with_windows,
    "act and watchdog": play_guarded,
    "submitted anew, and watchdog": play_resubmitted,
}


def main() -> int:
    """Share the runs out among the models and the processors, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="in all; each model gets its share")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each model")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    began, each = time.monotonic(), -(-options.runs // len(MODELS))
    broken: list[str] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for name in MODELS:
            seeds = range(options.seed, options.seed + each)
            chunks = [seeds[start : start + CHUNK] for start in range(0, each, CHUNK)]
            found = [line for lines in pool.map(_play_chunk, repeat(name), chunks) for line in lines]
            broken += found
            took_s = time.monotonic() - began
            sys.stdout.write(f"{name:<40}{each:>8} runs, {len(found)} broken; {took_s:.0f} s since the start\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join(broken[:20]) + "\n" if broken else "")
    return 1 if broken else 0


def _play_chunk(name: str, seeds: range) -> list[str]:
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # The only clock of the models is their own, so that a run can be repeated.
    requeue.STALE_AFTER_S = math.inf
    broken = []
    for seed in seeds:
        try:
            MODELS[name](seed)
        except AssertionError as error:
            broken.append(f"{name}, seed {seed}: {error}")
    return broken


if __name__ == "__main__":
    sys.exit(main())
