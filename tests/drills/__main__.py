"""``python -m tests.drills``: lose each source in turn while many jobs are under guard; exit code 1 when one of them is
touched, not shown as blind, not seen again in time, or a line is lost."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from pathlib import Path

import structlog
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from tests.drills.drill import Drill, DrillResult
from tests.drills.house import Scene, house
from tests.drills.outages import OUTAGES, Outage
from tests.drills.report import table
from tests.embedded.places import end_in_good_order_at_sigterm
from tests.stores.servers import NoStore

HANG_AFTER_S = 20.0


async def drill(outages: Sequence[Outage], *, jobs: int, hang_after_s: float) -> AsyncIterator[DrillResult]:
    """Drill `outages`, those of one scene in one house, and yield what came of each. Raises `NoStore` where a scene
    needs a store that is not on this machine."""
    for scene, of_scene in groupby(outages, lambda outage: outage.scene):
        turns = list(of_scene)
        async with house(scene, jobs + len(turns), hang_after_s) as place:
            for outage in turns:
                yield await Drill(place, outage).run()


def main() -> int:
    """Drill what the command line names, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="outages, by their names in the table")
    parser.add_argument("--scene", choices=[*Scene], help="only the outages of this scene")
    parser.add_argument("--hang-after-s", type=float, default=HANG_AFTER_S, help="which silence is a hang")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="where relight's own log goes")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    outages = [
        outage
        for outage in OUTAGES
        if (not options.only or outage.name in options.only) and options.scene in (None, outage.scene)
    ]
    if not outages:
        parser.error("no such outage; there are: " + ", ".join(repr(outage.name) for outage in OUTAGES))
    with options.log.open("w") as log:
        logging.basicConfig(stream=log)
        errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=errors))))
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        results = asyncio.run(_all(outages, options))
    sys.stdout.write(table(results) + "\n")
    if options.json:
        options.json.write_text(json.dumps([result.model_dump(mode="json") for result in results], indent=1))
    return 1 if any(result.violations for result in results) else 0


async def _all(outages: Sequence[Outage], options: argparse.Namespace) -> list[DrillResult]:
    results: list[DrillResult] = []
    end_in_good_order_at_sigterm()
    try:
        async for result in drill(outages, jobs=options.jobs, hang_after_s=options.hang_after_s):
            results.append(result)
            sys.stderr.write(f"{result.outage}: {'; '.join(result.violations) or 'nothing broken'}\n")
    except asyncio.CancelledError:
        sys.stderr.write("ended before its end\n")
    except NoStore as missing:
        sys.stderr.write(f"left out: {missing}\n")
    return results


if __name__ == "__main__":
    sys.exit(main())
