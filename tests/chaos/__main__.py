"""``python -m tests.chaos --seed N --runs N``: break everything while jobs recover; exit code 1 on a broken promise."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos.arena import simulated_arena
from tests.chaos.blows import BlowKind
from tests.chaos.plan import make_plan
from tests.chaos.real_arena import real_arena
from tests.chaos.report import RunResult, complaints, table
from tests.chaos.run import run
from tests.chaos.servers import Servers, servers_up
from tests.chaos.stage import OpenArena
from tests.embedded.places import end_in_good_order_at_sigterm
from tests.mutants.planted import MUTANTS

ARENAS: dict[str, OpenArena] = {"simulated": simulated_arena, "real": real_arena}


def main() -> int:
    """Run the seeds one after the other and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones count up")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no run after so many minutes; 0: no limit")
    parser.add_argument("--cluster", choices=[*ARENAS], default="simulated")
    parser.add_argument("--window-s", type=float, default=30.0, help="how long the blows of a run fall")
    parser.add_argument("--every-kind", action="store_true", help="every kind of blow in every run")
    parser.add_argument("--dense", type=int, default=0, help="so many workers, killed all the time; ever new jobs")
    parser.add_argument(
        "--mutant", choices=[*MUTANTS], default="", help="plant this bug in relight: it has to be found"
    )
    parser.add_argument("--keep", type=Path, help="where the logs of a run go in which something was broken")
    parser.add_argument("--json", type=Path, help="write the figures to this file too, after each run")
    options = parser.parse_args()
    results = asyncio.run(_runs(options))
    sys.stdout.write(table(results) + "\n")
    if broken := complaints(results, options.cluster):
        sys.stdout.write(broken + "\n")
        return 1
    return 0


async def _runs(options: argparse.Namespace) -> list[RunResult]:
    results: list[RunResult] = []
    end_in_good_order_at_sigterm()
    with suppress(asyncio.CancelledError):  # what is done is told
        async with servers_up() as servers:
            await _one_after_the_other(servers, options, results)
    return results


async def _one_after_the_other(servers: Servers, options: argparse.Namespace, results: list[RunResult]) -> None:
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.runs):
        if options.minutes and time.monotonic() - began > options.minutes * 60:
            break
        plan = make_plan(seed, window_s=options.window_s, every_kind=options.every_kind, dense=options.dense)
        arena = ARENAS[options.cluster]
        results.append(await run(servers, plan, arena, mutant=options.mutant, keep=options.keep))
        sys.stdout.write(_line(results[-1]) + "\n")
        sys.stdout.flush()
        if options.json:
            options.json.write_text(json.dumps([result.model_dump(mode="json") for result in results], indent=1))


def _line(result: RunResult) -> str:
    found = f"{len(result.violations)} violations" if result.violations else "nothing broken"
    kills = result.blows.get(BlowKind.KILL_WORKER, 0)
    return f"seed {result.seed}: {result.took_s:.0f} s; {kills} worker kills; {result.recoveries} recoveries; {found}"


if __name__ == "__main__":
    sys.exit(main())
