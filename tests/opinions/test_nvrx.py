"""nvrx-attrsvc as recorded, and in trouble: nothing but a completed STOP is a stop, and nothing is ever raised."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.attribution.nvrx import NvrxService
from activities.attribution.protocol import AskPhase
from activities.attribution.settings import NvrxSettings
from recovery.attribution.incident import LogLine
from recovery.opinion import Heard, Hint, NoOpinion, Opinion
from tests.opinions.parts import RECORDINGS, Asked, Reply, StandIn, one_after_another, question, standing_in
from tests.stores.servers import free_port

SUBMITTED = '{"submitted":true,"normalized_path":"/logs/x","mode":"single"}'
HTML = "<!DOCTYPE html><html><title>Sign in</title></html>"
OUTPUT = ("/logs/job-4711/train.out",)


def recorded(name: str) -> str:
    return (RECORDINGS / f"{name}.json").read_text()


def said(code: str, message: str = "no") -> str:
    return json.dumps({"error_code": f"errorcode.{code}", "message": message, "details": None})


def completed(action: object, **more: Any) -> str:
    return json.dumps({"status": "completed", "result": {}, "recommendation": {"action": action}} | more)


def looking_up(*replies: Reply, submit: Reply | None = None) -> Callable[[Asked], Reply]:
    """Take what is submitted, and answer look-ups with `replies` in turn."""
    look_up = one_after_another(*replies)
    return lambda asked: (submit or Reply(SUBMITTED)) if asked.method == "POST" else look_up(asked)


async def heard(service: StandIn | str, *, slow_s: float = 5.0, phase: AskPhase = AskPhase.SLOW, **told: Any) -> Heard:
    url = service if isinstance(service, str) else service.url
    changes = {name: told.pop(name) for name in ("copy_dir", "access", "timeout_s") if name in told}
    settings = NvrxSettings.model_validate(
        {"kind": "nvrx", "url": url, "slow_s": slow_s, "poll_interval_s": 0.2, "max_asks_per_min": 6_000, **changes}
    )
    client = NvrxService(settings)
    try:
        return await client.ask(question(**{"own_files": OUTPUT, **told}), phase)
    finally:
        await client.close()


async def opinion_on(answer: str, **told: Any) -> Opinion:
    async with standing_in(looking_up(Reply(answer))) as service:
        found = await heard(service, **told)
    assert isinstance(found, Opinion), found
    return found


async def reason_for(*replies: Reply, submit: Reply | None = None, **told: Any) -> str:
    async with standing_in(looking_up(*replies, submit=submit)) as service:
        found = await heard(service, **told)
    assert isinstance(found, NoOpinion), found
    assert found.reason.isprintable()
    return found.reason


async def test_a_completed_stop_is_a_stop() -> None:
    found = await opinion_on(recorded("nvrx_07_stuck_cycle3"))
    assert (found.hint, found.says, found.cause) == (Hint.STOP, "nvrx", "observed_exception")
    assert "retry_budget_exhausted" in found.text


async def test_a_restart_with_a_host_in_the_line_names_no_node() -> None:
    found = await opinion_on(recorded("nvrx_07_get_completed_gpu_fault"))
    assert (found.hint, found.nodes, found.cause) == (Hint.RESTART, (), "gpu_hardware_fault")


async def test_unknown_is_no_stop_and_says_why() -> None:
    found = await opinion_on(recorded("nvrx_07_get_missing_log"))
    assert (found.hint, found.text) == (
        Hint.UNKNOWN,
        "log path is missing: /logs/job-123/missing_cycle7.log",
    )


@pytest.mark.parametrize("action", ["UNKNOWN", "TIMEOUT", "stop", "STOP!", "", "RESTART STOP"])
async def test_no_other_word_is_a_stop(action: str) -> None:
    assert (await opinion_on(completed(action))).hint is Hint.UNKNOWN


async def test_the_older_release_decides_by_its_state() -> None:
    found = await opinion_on(recorded("nvrx_06_completed"))
    assert found.hint is Hint.CONTINUE
    assert found.text.startswith("RESTART IMMEDIATE")
    stop = '{"status":"completed","result":{"state":"STOP","result":[["STOP - DONT RESTART IMMEDIATE",2]]}}'
    assert (await opinion_on(stop)).hint is Hint.STOP
    late = '{"status":"completed","result":{"state":"timeout","result":[],"error":"LLM analysis timed out"}}'
    assert (await opinion_on(late)).hint is Hint.UNKNOWN


async def test_what_recommends_is_never_read_by_its_state() -> None:
    assert (await opinion_on(completed("RESTART", result={"state": "STOP"}))).hint is Hint.RESTART
    assert (await opinion_on(completed("UNKNOWN", result={"state": "STOP"}))).hint is Hint.UNKNOWN


@pytest.mark.parametrize("status", ["failed", "cancelled", "COMPLETED", "done"])
async def test_a_stop_that_is_not_completed_is_no_opinion(status: str) -> None:
    answer = json.dumps({"status": status, "result": {"state": "STOP"}, "recommendation": {"action": "STOP"}})
    assert f"ended as '{status}'" in await reason_for(Reply(answer))


async def test_the_analysis_is_asked_for_once_and_polled_until_it_is_there() -> None:
    pending = Reply(recorded("nvrx_07_get_pending"))
    replies = looking_up(pending, pending, Reply(recorded("nvrx_07_stuck_cycle3")))
    async with standing_in(replies) as service:
        found = await heard(service)
    assert isinstance(found, Opinion)
    posts = [json.loads(asked.body) for asked in service.asked if asked.method == "POST"]
    assert posts == [
        {
            "log_path": OUTPUT[0],
            "user": "ana",
            "job_id": "4711@1772352000",
            "cycle_id": 0,
            "analysis_intent": "terminal",
        }
    ]
    looks = [asked.query for asked in service.asked if asked.method == "GET"]
    assert looks == [{"log_path": OUTPUT[0], "wait": "false"}] * 3


async def test_a_release_that_refuses_new_fields_gets_the_old_ones() -> None:
    def replies(asked: Asked) -> Reply:
        if asked.method == "GET":
            return Reply(completed("RESTART"))
        strict = b"cycle_id" in asked.body
        return (
            Reply('{"detail":[{"type":"extra_forbidden","loc":["body","cycle_id"]}]}', 422) if strict else Reply("{}")
        )

    async with standing_in(replies) as service:
        found = await heard(service)
    assert isinstance(found, Opinion)


async def test_what_was_lost_in_a_restart_is_submitted_again() -> None:
    lost = Reply(said("not_found", "attempt has not been submitted"), 404)
    async with standing_in(looking_up(lost, Reply(completed("STOP")))) as service:
        found = await heard(service)
    assert isinstance(found, Opinion)
    assert [asked.method for asked in service.asked] == ["POST", "GET", "POST", "GET"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "outside_root", ["HTTP 403", "ALLOWED_ROOT", "`copy_dir`"]),
        (403, "not_readable", ["may not read the file"]),
        (400, "invalid_parameter", ["one attempt for each file", "`copy_dir`"]),
        (400, "empty_file", ["is empty"]),
        (400, "something_new", ["see the log of the service"]),
    ],
)
async def test_a_refusal_is_no_opinion_with_a_remedy(status: int, code: str, words: list[str]) -> None:
    reason = await reason_for(Reply(completed("STOP")), submit=Reply(said(code), status))
    assert [word for word in words if word not in reason] == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("no credentials", 401), ["HTTP 401", "`access`"]),
        (Reply("", 302, {"Location": "https://sso.example.org"}), ["HTTP 302", "`url`"]),
        (Reply("404 page not found", 404), ["HTTP 404", "`url`"]),
        (Reply("[]", 422), ["HTTP 422"]),
        (Reply("oops", 500), ["HTTP 500", "own log"]),
        (Reply(said("job_limit_reached"), 503), ["HTTP 503"]),
        (Reply(HTML, 200, {"Content-Type": "text/html"}), ["HTML", "proxy"]),
        (Reply("[1, 2"), ["not what its API says"]),
        (Reply('{"status": 7, "result": []}'), ["not what its API says"]),
        (Reply('{"status":"completed","result":{},"recommendation":{"action":["STOP"]}}'), ["not what its API says"]),
        (Reply("[" * 100_000), ["not what its API says"]),
        (Reply(b" " * (2 << 20)), ["more than 1 MiB"]),
        (Reply(completed("STOP"), delay_s=3.0), ["no answer within 0.5 s"]),
    ],
    ids=lambda value: str(getattr(value, "body", ""))[:20],
)
async def test_a_bad_answer_is_no_opinion(reply: Reply, words: list[str]) -> None:
    reason = await reason_for(reply, slow_s=4, timeout_s=0.5 if reply.delay_s else 3.5)
    assert [word for word in words if word not in reason] == []


async def test_a_service_that_is_down_is_no_opinion_in_time() -> None:
    begun_s = time.monotonic()
    found = await heard(f"http://127.0.0.1:{free_port()}", slow_s=1.5)
    assert isinstance(found, NoOpinion)
    assert "check `url`" in found.reason
    assert time.monotonic() - begun_s < 20


async def test_a_service_that_comes_back_is_heard() -> None:
    async with standing_in(looking_up(Reply("", 502), Reply("", 503), Reply(completed("STOP")))) as service:
        found = await heard(service, slow_s=20)
    assert isinstance(found, Opinion)


async def test_a_pause_that_it_asks_for_is_kept() -> None:
    busy = Reply('{"error":"Rate limit exceeded: 60 per 1 minute"}', 429, {"Retry-After": "2"})
    at_s: list[float] = []
    replies = looking_up(busy, Reply(completed("RESTART")))

    def timed(asked: Asked) -> Reply:
        at_s.append(time.monotonic())
        return replies(asked)

    async with standing_in(timed) as service:
        found = await heard(service, slow_s=20)
    assert isinstance(found, Opinion)
    assert at_s[2] - at_s[1] >= 1.9
    assert "RATE_LIMIT_ANALYZE" in await reason_for(busy, slow_s=1)


async def test_all_questions_together_keep_to_its_limit() -> None:
    async with standing_in(looking_up(Reply(completed("RESTART")))) as service:
        settings = {"kind": "nvrx", "url": service.url, "max_asks_per_min": 1, "slow_s": 3}
        client = NvrxService(NvrxSettings.model_validate(settings))
        asking = (client.ask(question(own_files=(f"/logs/{n}.out",)), AskPhase.SLOW) for n in range(3))
        found = await asyncio.gather(*asking)
        await client.close()
    assert len([each for each in found if isinstance(each, Opinion)]) == 1
    assert [asked.method for asked in service.asked].count("GET") == 1


async def test_it_is_not_asked_about_what_may_be_a_quotation() -> None:
    async with standing_in(looking_up(Reply(completed("STOP")))) as service:
        assert isinstance(await heard(service, failed=False), NoOpinion)
        assert isinstance(await heard(service, phase=AskPhase.FAST), NoOpinion)
    assert service.asked == []


async def test_an_attempt_without_a_file_of_its_own_is_copied_and_the_copy_removed(tmp_path: Path) -> None:
    shown: list[tuple[str, str, int]] = []
    look_up = looking_up(Reply(completed("STOP")))

    def replies(asked: Asked) -> Reply:
        if asked.method == "GET":
            path = Path(asked.query["log_path"])
            shown.append((path.name, path.read_text(), path.stat().st_mode & 0o777))
        return look_up(asked)

    lines = (
        LogLine(text="export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz"),
        LogLine(text="Segmentation fault", rank=12),
    )
    async with standing_in(replies) as service:
        found = await heard(service, own_files=(), lines=lines, copy_dir=str(tmp_path), attempt=3)
    assert isinstance(found, Opinion)
    ((name, text, mode),) = shown
    assert name == "alpha-4711-1772352000-3.relight.log"
    assert text == "export HF_TOKEN=[redacted]\n12: Segmentation fault\n"
    assert mode & 0o007 == 0
    assert list(tmp_path.iterdir()) == []


async def test_without_a_file_or_a_place_for_a_copy_it_is_not_asked(tmp_path: Path) -> None:
    reason = await reason_for(Reply(completed("STOP")), own_files=())
    assert "set `copy_dir`" in reason
    missing = str(tmp_path / "missing")
    assert "can't be copied to `copy_dir`" in await reason_for(Reply(completed("STOP")), copy_dir=missing)
    assert "could be read" in await reason_for(Reply(completed("STOP")), copy_dir=str(tmp_path), lines=())


async def test_its_words_are_bounded_printable_and_without_secrets() -> None:
    reason = "token=abcdefgh\x1b[31m\n" + "x" * 50_000
    found = await opinion_on(
        json.dumps({**json.loads(completed("STOP")), "recommendation": {"action": "STOP", "reason": reason}})
    )
    assert found.text.startswith("token=[redacted]")
    assert len(found.text) <= 600
    assert found.text.isprintable()
    assert found.nodes == ()
