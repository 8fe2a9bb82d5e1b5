"""A reservation on a test cluster, for as long as it is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.slurm.cluster import ClusterFailed, SlurmCluster

NAME = "training"
PATIENCE_S = 60.0


@contextmanager
def reservation(slurm: SlurmCluster, nodes: str) -> Iterator[None]:
    """Reserve `nodes`, as a host list, for root. Slurm deletes a reservation once the last job in it is gone."""
    words = ("starttime=now", "duration=60", f"nodes={nodes}", "users=root", "flags=ignore_jobs")
    slurm.run("scontrol", "create", "reservation", f"reservationname={NAME}", *words)
    try:
        yield
    finally:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                slurm.run("scontrol", "delete", f"reservationname={NAME}")
            except ClusterFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                break
