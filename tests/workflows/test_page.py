"""What a job's page in Temporal's Web UI says."""

from __future__ import annotations

from datetime import UTC, datetime

from recovery.model import JobKey
from tests.workflows import parts
from workflows.state import RecoveryState
from workflows.visibility import details


def test_while_it_is_blind_the_page_says_since_when_and_why_in_plain_text() -> None:
    since = datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)
    start = parts.start(JobKey(cluster="alpha", job_id="7", submitted_at=parts.SUBMITTED_AT), parts.ACT, None)
    state = RecoveryState(
        attempt_submitted_at=parts.SUBMITTED_AT,
        blind_since=since,
        blind_because="the scheduler gives no answer: [x](http://evil)",
    )
    assert r"**blind** since 12:34:56: the scheduler gives no answer: \[x\](http://evil)" in details(start, state)
