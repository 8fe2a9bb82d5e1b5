"""What a healthy job adds to Temporal's history in a day.

The real workflow and the real watch run on a real server, with a lease of seconds in the place of hours; the growth per
lease, times the leases of a day, is the day's.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities.scheduler.simulated import SimulatedCluster, SimulatedScheduler
from benchmarks.crowd import growing, submit_crowd
from benchmarks.figures import Figure, Report
from benchmarks.polling import until_some
from benchmarks.service import CLUSTER, running_program, running_servers
from workers.settings import load_settings
from workers.worker import running_worker
from workflows.options import WATCH_LEASE

EVENTS_TARGET_PER_DAY = 20.0
LEASES_PER_DAY = timedelta(days=1) / WATCH_LEASE
WATCH = "watch_attempt"


@dataclass(frozen=True)
class Size:
    """How long a history, or a piece of it, is."""

    events: int
    payload_bytes: int


async def measure(leases: int, lease_s: float) -> Report:
    """Let a healthy job live through `leases` leases of about `lease_s` seconds."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relight-history-")))
        servers = await stack.enter_async_context(running_servers(directory))
        socket = directory / "cluster.sock"
        simulator = ("--state-dir", str(directory / "cluster"), "--socket", str(socket))
        await stack.enter_async_context(running_program(directory / "simulator.log", "workers.simulator", *simulator))
        cluster = SimulatedCluster(socket)
        await cluster.ready()
        logs = await submit_crowd(cluster, SimulatedScheduler(socket), 1)
        await stack.enter_async_context(growing(logs))
        scheduler = {"kind": "simulated", "socket": str(socket)}
        settings = load_settings(servers.write_settings(directory / "relight.yaml", scheduler))
        stack.enter_context(patch("workers.worker.WATCH_LEASE", timedelta(seconds=lease_s)))
        await stack.enter_async_context(running_worker(servers.client, settings, servers.postgres.dsn))
        start, grown = await _watch_growing(servers.client, leases, timeout_s=30 + 2 * leases * lease_s)
    what = (
        f"a healthy job on the real server over {leases} leases of {lease_s:g} s,"
        f" told for {LEASES_PER_DAY:g} leases of {WATCH_LEASE.total_seconds() / 3600:g} h a day"
    )
    return Report("history", what, tuple(_figures(start, grown)))


async def _watch_growing(client: Client, leases: int, *, timeout_s: float) -> tuple[Size, list[Size]]:
    """Wait until the job has lived through its leases; return the size of its start, and of each lease.

    The first lease counts as part of the start: what is told of the adoption arrives during it.
    """
    handle = client.get_workflow_handle(f"recovery/{CLUSTER}/1")

    async def look() -> list[Size] | None:
        pieces = _pieces(await _events_of(handle))
        return pieces if len(pieces) >= leases + 2 else None

    start, *grown = (await until_some(look, timeout_s=timeout_s))[: leases + 2]
    return Size(start.events + grown[0].events, start.payload_bytes + grown[0].payload_bytes), grown[1:]


async def _events_of(handle: WorkflowHandle[Any, Any]) -> list[HistoryEvent]:
    try:
        return list((await handle.fetch_history()).events)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return []
        raise


def _pieces(events: list[HistoryEvent]) -> list[Size]:
    """Cut a history behind each order to watch; what follows the last one is left out."""
    pieces, piece = [], Size(0, 0)
    for event in events:
        piece = Size(piece.events + 1, piece.payload_bytes + event.ByteSize())
        if event.activity_task_scheduled_event_attributes.activity_type.name == WATCH:
            pieces.append(piece)
            piece = Size(0, 0)
    return pieces


def _figures(start: Size, leases: list[Size]) -> list[Figure]:
    events = statistics.median(lease.events for lease in leases)
    largest_bytes = max(lease.payload_bytes for lease in leases)
    day_bytes = largest_bytes * LEASES_PER_DAY
    return [
        Figure(
            "history events of a healthy job",
            events * LEASES_PER_DAY,
            "a day",
            EVENTS_TARGET_PER_DAY,
            f"{events:g} a lease; Temporal ends a workflow at 51,200",
        ),
        Figure("history bytes of a healthy job", day_bytes / 1024, "KiB a day", None, "the largest lease's"),
        Figure("events of taking it under guard", start.events - events, "once"),
        Figure("bytes of taking it under guard", (start.payload_bytes - largest_bytes) / 1024, "KiB once"),
    ]
