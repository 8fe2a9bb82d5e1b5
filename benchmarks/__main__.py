"""``python -m benchmarks``: measure, and print figures with what each is held against."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterator

from benchmarks import bulk, cli, history, jobs, latency, logs, scanner, storm, transports
from benchmarks.figures import Report, as_json, as_text, machine
from workers.logs import set_up_logging

NAMES = ("latency", "jobs", "storm", "history", "logs", "cli", "scanner", "transports", "bulk")


def main() -> None:
    """Run the benchmarks that are asked for, one after the other."""
    options = _options()
    set_up_logging(debug=False)
    print(f"{machine()}; load average {_load()}", file=sys.stderr)
    reports = []
    for report in _measure(NAMES if options.benchmark == "all" else (options.benchmark,), options):
        reports.append(report)
        if not options.json:
            print(f"\n{as_text(report)}", flush=True)
        print(f"load average {_load()}", file=sys.stderr)
    if options.json:
        print(as_json(reports))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=(*NAMES, "all"), default="all")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout in the place of the tables")
    parser.add_argument("--recoveries", type=int, default=10, help="latency: how many of each kind")
    parser.add_argument("--jobs", type=int, default=200, help="jobs, storm: how many there are")
    parser.add_argument("--seconds", type=float, default=60.0, help="jobs, logs: how long each look takes")
    parser.add_argument("--warm-up", type=float, default=20.0, help="jobs: seconds before the look at the busy worker")
    parser.add_argument("--told-s", type=float, default=120.0, help="storm: how long messages are counted at most")
    parser.add_argument("--leases", type=int, default=6, help="history: how many a job lives through")
    parser.add_argument("--lease-s", type=float, default=5.0, help="history: how long each lease is")
    parser.add_argument("--lines", type=int, default=10, help="logs: how many fatal lines through each source")
    parser.add_argument("--followed", type=int, default=1_000, help="logs: how many jobs of a store are followed")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="scanner: how large each log is")
    parser.add_argument("--stream-gigabytes", type=float, default=10.0, help="scanner: how long the stream is")
    parser.add_argument("--calls", type=int, default=100, help="transports: how many bulk reads each way")
    parser.add_argument("--large-jobs", type=int, default=5_000, help="bulk: how many jobs one answer has")
    parser.add_argument("--runs", type=int, default=15, help="cli: how many starts of each command")
    return parser.parse_args()


def _measure(names: tuple[str, ...], options: argparse.Namespace) -> Iterator[Report]:
    measures: dict[str, Callable[[], Report]] = {
        "latency": lambda: asyncio.run(latency.measure(options.recoveries)),
        "jobs": lambda: asyncio.run(jobs.measure(options.jobs, options.seconds, warm_up_s=options.warm_up)),
        "storm": lambda: asyncio.run(storm.measure(options.jobs, options.told_s)),
        "history": lambda: asyncio.run(history.measure(options.leases, options.lease_s)),
        "logs": lambda: asyncio.run(logs.measure(options.lines, options.followed, options.seconds)),
        "cli": lambda: cli.measure(options.runs),
        "scanner": lambda: scanner.measure(options.gigabytes, options.stream_gigabytes),
        "transports": lambda: asyncio.run(transports.measure(options.calls)),
        "bulk": lambda: bulk.measure(options.large_jobs),
    }
    for name in names:
        yield measures[name]()


def _load() -> str:
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


if __name__ == "__main__":
    main()
