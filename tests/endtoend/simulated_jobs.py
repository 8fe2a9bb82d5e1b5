"""Jobs on the simulated cluster: the example training program with a fault on request."""

from __future__ import annotations

import json
import sys

from activities.scheduler.simulated_wire import JobSpec
from tests.simulator.running import RunningSimulator
from workers.simulator.scenario import TRAIN_PY

ACT = {"relight": {"mode": "act"}}
OBSERVE = {"relight": {"mode": "observe"}}


async def submit(
    simulator: RunningSimulator,
    name: str,
    *arguments: str,
    nodes: int = 1,
    comment: object = ACT,
    iterations: int = 4000,
    requeueable: bool = True,
) -> str:
    """Submit a training job and return its id; it trains for many minutes unless a fault or `iterations` ends it."""
    directory = simulator.directory.absolute()
    return await simulator.cluster.submit(
        JobSpec(
            name=name,
            nodes=nodes,
            requeueable=requeueable,
            comment=comment if isinstance(comment, str) else json.dumps(comment),
            working_directory=str(directory),
            output="%x-%j.log",
            label=True,
            argv=(
                *(sys.executable, str(TRAIN_PY), "--step-s", "0.1", "--checkpoint-every", "10"),
                *("--iterations", str(iterations), "--checkpoint-dir", str(directory / f"ckpt-{name}"), *arguments),
            ),
        )
    )
