"""Ships a job's output file to a store as it grows, as the collectors on its nodes would."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.stores.servers import RunningStore, Shipper, shipping

EVERY_S = 0.2
_TASK = re.compile(r"^ *(\d+): (.*)$")


class Collector:
    """Follows one file of ``srun --label``. The task's number becomes labels: the lines are shipped without it."""

    def __init__(self, shipper: Shipper, job_id: str, log: Path, nodes: Sequence[str]) -> None:
        self._shipper = shipper
        self._job_id = job_id
        self._log = log
        self._nodes = nodes
        self._offset = 0

    async def run(self) -> None:
        """Ship until cancelled."""
        while True:
            await self._ship_new()
            await asyncio.sleep(EVERY_S)

    async def _ship_new(self) -> None:
        data = self._log.read_bytes() if self._log.exists() else b""
        if len(data) < self._offset:
            self._offset = 0
        new = data[self._offset : data.rfind(b"\n") + 1]
        for line in new.decode(errors="replace").splitlines():
            found = _TASK.match(line)
            if found is None:
                await self._shipper.ship(self._job_id, [line], filename=self._log.name)
                continue
            node = self._nodes[int(found[1]) % len(self._nodes)]
            await self._shipper.ship(self._job_id, [found[2]], host=node, rank=found[1], filename=self._log.name)
        self._offset += len(new)


@asynccontextmanager
async def collecting(
    store: RunningStore, job_id: str, log: Path, nodes: Sequence[str], *, cluster: str
) -> AsyncIterator[None]:
    """A collector while the context is open."""
    async with shipping(store, cluster=cluster) as shipper:
        running = asyncio.create_task(Collector(shipper, job_id, log, nodes).run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
