"""``python -m tests.workflows.record``: tell all stories to the real server and keep their histories for replays."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from tests.workflows.servers import real_server
from tests.workflows.stage import Stage, real_clock
from tests.workflows.stories import STORIES

DIRECTORY = Path(__file__).parent.parent / "histories"
MAX_HISTORY_BYTES = 200_000


def path_of(name: str) -> Path:
    """Return where the history of the story `name` is kept."""
    return DIRECTORY / f"{name}.json"


async def histories() -> AsyncIterator[WorkflowHistory]:
    """Yield all recorded histories, each under its story's name."""
    for path in sorted(DIRECTORY.glob("*.json")):
        yield WorkflowHistory.from_json(path.stem, path.read_text())


async def record(names: list[str]) -> None:
    """Record the stories `names`, all of them when there is none."""
    DIRECTORY.mkdir(exist_ok=True)
    async with real_server() as server:
        for name in names or STORIES:
            stage = Stage(server.client, name.replace("_", "-"), real_clock)
            async with stage.open():
                handle = await STORIES[name](stage)
                history = _portable(json.loads((await handle.fetch_history()).to_json()))
                await stage.close()
            text = json.dumps(history, separators=(",", ":"))
            path_of(name).write_text(text + "\n")
            print(f"{name}: {len(history['events'])} events, {len(text)} bytes")  # noqa: T201


def _portable(node: Any) -> Any:
    """Leave out stack traces: they name this machine's paths, and a replay does not read them."""
    if isinstance(node, dict):
        return {name: _portable(value) for name, value in node.items() if name != "stackTrace"}
    return [_portable(value) for value in node] if isinstance(node, list) else node


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:]))
