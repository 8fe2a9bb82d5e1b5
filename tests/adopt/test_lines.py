"""A job that was submitted in the place of another goes on from what that handed on, and only from that."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from activities.scheduler.protocol import JobRecord
from tests.adopt.conftest import PAST
from tests.adopt.guarding import Guarding

pytestmark = pytest.mark.temporal


def successor(guarding: Guarding, job_id: str, *, of: str = "7", count: int = 1) -> JobRecord:
    lineage = {"order": "the advice", "of": of, "count": count, "since": datetime.now(UTC).isoformat()}
    comment = json.dumps({"relight": {"mode": "act"}, "relight-resubmission": lineage})
    return guarding.record(job_id, comment=comment)


async def test_a_successor_waits_for_the_end_of_its_predecessors_workflow_and_inherits_its_attempts(
    guarding: Guarding,
) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    new = successor(guarding, "9", count=2)
    assert not await guarding.adopt(new)
    assert not await guarding.is_guarded("9")
    await guarding.close("7", record.submitted_at, resubmitted_as="9")
    assert await guarding.adopt(new)

    inherited = (await guarding.start_of("9")).inherited
    assert (inherited.of, inherited.resubmissions, inherited.lost) == ("7", 2, False)
    assert inherited.handed.past == (PAST,)


async def test_a_predecessors_workflow_that_stays_after_its_guards_end_makes_way(guarding: Guarding) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    await guarding.close_but_stay("7", record.submitted_at, resubmitted_as="9")
    await guarding.until_adopted(successor(guarding, "9"))

    assert (await guarding.start_of("9")).inherited.handed.past == (PAST,)


async def test_a_comment_that_names_a_job_which_does_not_name_it_back_inherits_nothing_and_counts_as_lost(
    guarding: Guarding,
) -> None:
    record = guarding.record()
    await guarding.adopt(record)
    await guarding.close("7", record.submitted_at, resubmitted_as="9")
    assert await guarding.adopt(successor(guarding, "10"))

    inherited = (await guarding.start_of("10")).inherited
    assert (inherited.handed.past, inherited.lost) == ((), True)


async def test_a_predecessor_that_temporal_does_not_know_any_more_counts_as_lost(guarding: Guarding) -> None:
    assert await guarding.adopt(successor(guarding, "11", of="4711", count=3))

    inherited = (await guarding.start_of("11")).inherited
    assert (inherited.resubmissions, inherited.lost) == (3, True)


async def test_a_line_that_cannot_be_read_makes_the_job_one_of_its_own(guarding: Guarding) -> None:
    comment = json.dumps({"relight": {"mode": "act"}, "relight-resubmission": {"of": "$(reboot)"}})
    assert await guarding.adopt(guarding.record("12", comment=comment))

    assert (await guarding.start_of("12")).inherited.of is None
