"""A failed attempt to ask about, and a stand-in that answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from activities.attribution.protocol import Question
from recovery.attribution.incident import LogLine
from recovery.model import JobKey, SymptomKind
from recovery.policy import Ending

RECORDINGS = Path(__file__).parent / "recordings"
NODES = ("node01", "node02", "node03", "node04")
JOB = JobKey(cluster="alpha", job_id="4711", submitted_at=datetime(2026, 3, 1, 8, tzinfo=UTC))
FAILURE = (
    "0: step 1 loss 2.0",
    "0: iteration 5/100",
    "0: ValueError: expected sequence length 4096 but got 4095",
)


def question(**told: Any) -> Question:
    """A crash of the job's first attempt."""
    facts: dict[str, Any] = {
        "job": JOB,
        "attempt": 0,
        "key": "recovery/alpha/4711@1772352000#0.1",
        "user": "ana",
        "failed": True,
        "symptom": SymptomKind.CRASH,
        "ending": Ending(state="FAILED", exit_code=1),
        "nodes": NODES,
        "lines": tuple(LogLine(text=text) for text in FAILURE),
        **told,
    }
    return Question(**facts)


@dataclass(frozen=True)
class Reply:
    """What the stand-in says once."""

    body: bytes | str = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0

    def sent(self) -> web.Response:
        """The answer as it goes out."""
        body = self.body.encode() if isinstance(self.body, str) else self.body
        return web.Response(body=body, status=self.status, headers={"Content-Type": "application/json", **self.headers})


@dataclass
class Asked:
    """One request that reached the stand-in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class StandIn:
    """A server that says what `replies` gives for a request, and keeps what it was asked."""

    def __init__(self, replies: Callable[[Asked], Reply]) -> None:
        self.replies = replies
        self.asked: list[Asked] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        """Serve one request."""
        asked = Asked(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        self.asked.append(asked)
        reply = self.replies(asked)
        await asyncio.sleep(reply.delay_s)
        return reply.sent()


@asynccontextmanager
async def standing_in(replies: Callable[[Asked], Reply]) -> AsyncIterator[StandIn]:
    """Serve while the context is open."""
    stand_in = StandIn(replies)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{tail:.*}", stand_in.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    stand_in.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    try:
        yield stand_in
    finally:
        await runner.cleanup()


def one_after_another(*replies: Reply) -> Callable[[Asked], Reply]:
    """Say `replies` in turn, the last one for ever."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
