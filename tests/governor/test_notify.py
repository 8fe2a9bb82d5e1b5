"""The webhook, against a real HTTP server: what it gets, and that its address is told to nobody."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import structlog
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.notify import Notifier
from recovery.notices import Notice, NoticeKind
from tests.governor.webhook import SECRET_PATH, Webhook

NOTICE = Notice(
    kind=NoticeKind.FAILURES,
    cluster="alpha",
    at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    text="job alpha/1 failed: <!channel> HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz & more",
    failures=1,
    jobs=("alpha/1",),
    partitions={"gpu": 1},
)


async def told(address: str, times: int = 1) -> None:
    notifier = Notifier(address)
    for _ in range(times):
        await ActivityEnvironment().run(notifier.notify, NOTICE)
    await notifier.close()


async def test_the_webhook_gets_text_that_mentions_nobody_and_holds_no_secret() -> None:
    async with Webhook(200).listening() as webhook:
        await told(webhook.address)

    [body] = webhook.bodies
    assert body["text"] == "relight: job alpha/1 failed: &lt;!channel&gt; HF_TOKEN=[redacted] &amp; more"
    assert body | {"text": ""} == NOTICE.model_dump(mode="json") | {"text": ""}


@pytest.mark.parametrize(("status", "final"), [(500, False), (429, False), (404, True), (302, True)])
async def test_a_webhook_that_refuses_is_tried_again_only_where_that_may_help(status: int, final: bool) -> None:
    async with Webhook(status).listening() as webhook:
        with pytest.raises(ApplicationError) as untold:
            await told(webhook.address)

    assert untold.value.message == f"the webhook answered with status {status}; see notify.webhook_url"
    assert untold.value.non_retryable is final


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://[::1", "http://user:s3cret@127.0.0.1:9"])
async def test_a_webhook_that_is_not_there_is_told_of_without_its_address(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ApplicationError) as untold, structlog.testing.capture_logs() as logs:
        await told(address + SECRET_PATH)

    said = f"{untold.value!r} {untold.value.__cause__} {caplog.text} {logs}"
    assert "can't be reached" in said
    assert "verysecret" not in said
    assert "s3cret" not in said


async def test_one_client_serves_all_notices_and_is_closed_with_its_notifier(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[httpx.AsyncClient] = []

    class Seen(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            clients.append(self)

    monkeypatch.setattr(httpx, "AsyncClient", Seen)
    async with Webhook(200).listening() as webhook:
        await told(webhook.address, times=3)

    assert len(webhook.bodies) == 3
    assert [client.is_closed for client in clients] == [True]


async def test_without_a_webhook_the_log_tells() -> None:
    with structlog.testing.capture_logs() as logs:
        await told("")

    [line] = logs
    assert (line["event"], line["cluster"], line["kind"]) == ("notice", "alpha", "failures")
    assert "[redacted]" in line["text"]
