"""``python -m workers.simulator --state-dir DIR --socket PATH``: run a simulated cluster until it is told to end."""

from __future__ import annotations

import argparse
from pathlib import Path

from workers.simulator.cluster import Timing
from workers.simulator.server import MAX_SOCKET_PATH_BYTES, run_simulator


def main() -> None:
    """Parse the command line and run the cluster."""
    defaults = Timing()
    parser = argparse.ArgumentParser(prog="python -m workers.simulator", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True, help="where jobs run and write their output")
    parser.add_argument("--socket", type=Path, required=True, help="the unix socket to answer on")
    parser.add_argument("--name", default="simulated", help="the cluster's name")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--requeue-delay-s", type=float, default=defaults.requeue_delay_s)
    parser.add_argument("--min-job-age-s", type=float, default=defaults.min_job_age_s)
    options = parser.parse_args()
    if len(bytes(options.socket)) > MAX_SOCKET_PATH_BYTES:
        parser.error(f"--socket: the path is longer than {MAX_SOCKET_PATH_BYTES} bytes, choose a shorter one")
    timing = Timing(requeue_delay_s=options.requeue_delay_s, min_job_age_s=options.min_job_age_s)
    run_simulator(options.state_dir, options.socket, name=options.name, node_count=options.nodes, timing=timing)


if __name__ == "__main__":
    main()
