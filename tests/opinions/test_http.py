"""A site's own service: what it is asked, and that nothing it answers does harm."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from activities.attribution.contract import Request
from activities.attribution.http import HttpService
from activities.attribution.protocol import AskPhase
from activities.attribution.settings import HttpSettings
from activities.telemetry import spans_of
from recovery.attribution.incident import LogLine
from recovery.model import Category, Confidence, Evidence, Milestone, MilestoneKind, SymptomKind, Verdict
from recovery.opinion import Heard, Hint, NoOpinion, Opinion
from recovery.trace import RecoveryTrace
from tests.opinions.parts import JOB, NODES, Reply, StandIn, one_after_another, question, standing_in
from tests.stores.servers import free_port


def answer(**told: Any) -> Reply:
    return Reply(json.dumps({"status": "completed", **told}))


PENDING = Reply('{"status": "pending"}', 202, {"Retry-After": "1"})


async def heard(service: StandIn | str, *, phase: AskPhase = AskPhase.SLOW, **told: Any) -> Heard:
    url = service if isinstance(service, str) else f"{service.url}/attribute"
    changes = {name: told.pop(name) for name in ("slow_s", "fast_s", "timeout_s", "access") if name in told}
    client = HttpService(
        HttpSettings.model_validate({"kind": "http", "name": "ours", "url": url, "slow_s": 5, **changes})
    )
    try:
        return await client.ask(question(**told), phase)
    finally:
        await client.close()


async def opinion_on(*replies: Reply, **told: Any) -> Opinion:
    async with standing_in(one_after_another(*replies)) as service:
        found = await heard(service, **told)
    assert isinstance(found, Opinion), found
    return found


async def reason_for(*replies: Reply, **told: Any) -> str:
    async with standing_in(one_after_another(*replies)) as service:
        found = await heard(service, **told)
    assert isinstance(found, NoOpinion), found
    return found.reason


async def test_an_opinion_is_heard() -> None:
    told = answer(
        action="restart",
        cause="hbm_row_failure",
        category="hardware_gpu",
        nodes=["node02"],
        confidence="established",
        text="row remapping failed on node02",
    )
    found = await opinion_on(told)
    assert found.received_at.tzinfo is not None
    assert found.model_dump(exclude={"received_at"}) == {
        "kind": "opinion",
        "says": "ours",
        "hint": Hint.RESTART,
        "cause": "hbm_row_failure",
        "category": Category.HARDWARE_GPU,
        "nodes": ("node02",),
        "confidence": Confidence.ESTABLISHED,
        "text": "row remapping failed on node02",
    }


async def test_an_answer_may_say_nothing() -> None:
    found = await opinion_on(answer())
    assert (found.hint, found.nodes, found.category) == (Hint.UNKNOWN, (), Category.UNKNOWN)


async def test_nodes_that_were_not_in_the_allocation_are_left_out_and_told() -> None:
    found = await opinion_on(answer(nodes=["node02", "login01", "node02", "a;rm -rf /", "", "x9", "x8"], text="bad"))
    assert found.nodes == ("node02",)
    assert found.text == "bad; left out, the attempt did not run there: login01, ?, ? and 2 more"


async def test_what_is_asked_holds_all_that_is_known_and_no_secret() -> None:
    verdict = Verdict(
        symptom=SymptomKind.CRASH,
        category=Category.UNKNOWN,
        cause="unknown",
        summary="no cause was found",
        evidence=(Evidence(source="train.out", text="exit code 1"),),
    )
    lines = (*(LogLine(text=f"line {n}") for n in range(300)), LogLine(text="api_key=abcdefgh", rank=3, host="node04"))
    async with standing_in(one_after_another(answer())) as service:
        await heard(service, lines=lines, verdict=verdict, partition="gpu", job_name="pretrain")
    (asked,) = service.asked
    request = Request.model_validate_json(asked.body)
    assert (asked.method, asked.path, asked.headers["Content-Type"]) == ("POST", "/attribute", "application/json")
    assert (request.version, request.phase, request.attempt, request.failed) == (1, AskPhase.SLOW, 0, True)
    assert (request.job.job_id, request.job.name, request.job.user) == ("4711", "pretrain", "ana")
    assert request.nodes == NODES
    assert 0 < request.time_limit_s <= 5
    assert (len(request.lines), request.lines[0].text) == (200, "line 101")
    assert (request.lines[-1].text, request.lines[-1].rank) == ("api_key=[redacted]", 3)
    assert request.verdict is not None
    assert request.verdict.evidence == ("exit code 1",)


async def test_the_fast_phase_has_its_own_limit() -> None:
    begun_s = time.monotonic()
    reason = await reason_for(Reply("{}", delay_s=20), phase=AskPhase.FAST, fast_s=0.5)
    assert "0.5 s" in reason
    assert time.monotonic() - begun_s < 15
    async with standing_in(one_after_another(answer(action="stop"))) as service:
        found = await heard(service, phase=AskPhase.FAST, lines=())
    assert isinstance(found, Opinion)
    request = Request.model_validate_json(service.asked[0].body)
    assert (request.phase, request.verdict, request.lines) == (AskPhase.FAST, None, ())
    assert request.time_limit_s <= 2


async def test_one_that_still_works_is_asked_again() -> None:
    async with standing_in(one_after_another(PENDING, PENDING, answer(action="stop"))) as service:
        found = await heard(service, slow_s=30)
    assert isinstance(found, Opinion)
    keys = {json.loads(asked.body)["key"] for asked in service.asked}
    assert (len(service.asked), len(keys)) == (3, 1)
    assert "still worked" in await reason_for(PENDING, slow_s=1.5)


async def test_the_trace_of_a_question_is_the_one_that_the_recovery_is_exported_as() -> None:
    async with standing_in(one_after_another(answer())) as service:
        await heard(service, key=f"recovery/alpha/4711@{int(JOB.submitted_at.timestamp())}#0.2")
    header = service.asked[0].headers["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", header)
    milestone = Milestone(kind=MilestoneKind.DETECTED, attempt=0, at=JOB.submitted_at)
    root = spans_of(RecoveryTrace(job=JOB, attempt=0, generation=2, milestones=(milestone,)))[0]
    assert header.split("-")[1] == f"{root.context.trace_id:032x}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"status": "completed", "confidence": 17}', ["confidence"]),
        ('{"status": "completed", "confidence": "certain"}', ["confidence"]),
        ('{"status": "completed", "confidence": NaN}', ["confidence"]),
        ('{"status": "completed", "action": "STOP"}', ["action"]),
        ('{"status": "completed", "action": ["stop"]}', ["action"]),
        ('{"status": "done", "action": "stop"}', ["status"]),
        ('{"action": "stop"}', ["status"]),
        ('{"status": "completed", "nodes": "node01"}', ["nodes"]),
        ('{"status": "completed", "nodes": [1]}', ["nodes.0"]),
        (json.dumps({"status": "completed", "nodes": ["n"] * 5_000}), ["nodes"]),
        ('{"status": "completed", "category": "gremlins"}', ["category"]),
        ('{"status": "completed"', ["no JSON"]),
        ("stop", ["no JSON"]),
        ("[" * 100_000, ["schema"]),
        (" " * (2 << 20), ["more than 1 MiB"]),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_answer_that_is_not_as_the_schema_says_is_no_opinion(body: str, words: list[str]) -> None:
    reason = await reason_for(Reply(body))
    assert [word for word in ("ours at http://127.0.0.1", *words) if word not in reason] == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("who?", 401), ["HTTP 401", "`access`"]),
        (Reply("", 404), ["HTTP 404", "`url`"]),
        (Reply("", 307, {"Location": "http://127.0.0.1:1"}), ["HTTP 307", "`url`"]),
        (Reply("boom", 500), ["HTTP 500", "boom"]),
        (Reply("slow down", 429, {"Retry-After": "900"}), ["HTTP 429"]),
        (Reply("<html>", 200, {"Content-Type": "text/html"}), ["HTML"]),
        (Reply("{}", 200, delay_s=10), ["no answer within 0.5 s"]),
    ],
    ids=lambda value: str(getattr(value, "status", ""))[:20],
)
async def test_a_service_in_trouble_is_no_opinion_within_its_time(reply: Reply, words: list[str]) -> None:
    begun_s = time.monotonic()
    reason = await reason_for(reply, slow_s=4, timeout_s=0.5 if reply.delay_s else 3.5)
    assert [word for word in words if word not in reason] == []
    assert time.monotonic() - begun_s < 20


async def test_one_that_is_down_or_has_no_secret_is_no_opinion() -> None:
    found = await heard(f"http://127.0.0.1:{free_port()}", slow_s=1.2)
    assert isinstance(found, NoOpinion)
    assert "check `url`" in found.reason
    reason = await reason_for(answer(), access={"bearer_token_file": "/no/such/token"})
    assert "secret of `access`" in reason


async def test_its_words_are_bounded_printable_and_without_secrets() -> None:
    found = await opinion_on(
        answer(text="password=hunter22 \x1b[2J\u202e" + "y" * 90_000, cause="<script>alert(1)</script>")
    )
    assert found.text.startswith("password=[redacted]")
    assert len(found.text) <= 600
    assert found.text.isprintable()
    assert found.cause == ""
