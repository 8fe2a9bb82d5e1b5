"""The audit trail against a real PostgreSQL."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.audit import AuditActivities, AuditTrail, AuditUnavailable
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Action, Advice, Evidence, JobKey, Mode, Symptom, SymptomKind
from tests.embedded.places import open_directory
from workers.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
JOB = JobKey(cluster="alpha", job_id="17", submitted_at=NOON)


def event(number: int = 1, **changes: Any) -> AuditEvent:
    fields: dict[str, Any] = {
        "key": f"{JOB.workflow_id}#{number}",
        "at": NOON + timedelta(seconds=number),
        "job": JOB,
        "attempt": 0,
        "kind": AuditKind.DETECTED,
        "who": "policy",
        "summary": "the attempt crashed",
        "mode": Mode.OBSERVE,
    }
    return AuditEvent(**(fields | changes))


async def test_what_is_recorded_is_read_back_in_the_order_in_which_it_happened(trail: AuditTrail) -> None:
    advice = Advice(
        job=JOB,
        attempt=0,
        generation=1,
        action=Action.RESTART_EXCLUDE,
        exclude=("n3",),
        reason="its GPU fell off the bus",
        rule="hardware",
        advised_at=NOON,
        expires_at=NOON + timedelta(minutes=15),
    )
    told = [event(2, kind=AuditKind.ADVISED, advice=advice), event(1), event(3, details={"nodes": ["n3"], "n": 1})]
    await trail.record(told)
    page = await trail.events_of_job("alpha", "17")
    assert page.events == tuple(sorted(told, key=lambda each: each.at))
    assert page.next is None


async def test_an_event_told_twice_is_kept_as_it_was_first_told(trail: AuditTrail) -> None:
    await trail.record([event(1)])
    await trail.record([event(1, summary="told otherwise"), event(2)])
    assert [each.summary for each in (await trail.events()).events] == ["the attempt crashed"] * 2


async def test_a_batch_is_stored_whole_or_not_at_all(trail: AuditTrail) -> None:
    too_large_for_the_column = event(2).model_copy(update={"attempt": 2**40})
    with pytest.raises(AuditUnavailable):
        await trail.record([event(1), too_large_for_the_column])
    assert (await trail.events()).events == ()


async def test_pages_follow_each_other_without_gap_or_overlap(trail: AuditTrail) -> None:
    same_moment = [event(number, at=NOON) for number in range(7)]
    await trail.record(same_moment)
    read: list[AuditEvent] = []
    page = await trail.events_of_job("alpha", "17", limit=3)
    while True:
        read += page.events
        if page.next is None:
            break
        page = await trail.events_of_job("alpha", "17", after=page.next, limit=3)
    assert sorted(each.key for each in read) == sorted(each.key for each in same_moment)


async def test_the_events_of_another_job_are_not_this_jobs(trail: AuditTrail) -> None:
    other = JOB.model_copy(update={"job_id": "18"})
    await trail.record([event(1), event(2, job=other)])
    assert [each.job for each in (await trail.events_of_job("alpha", "18")).events] == [other]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE relight.audit_event SET who = 'nobody'",
        "DELETE FROM relight.audit_event",
        "TRUNCATE relight.audit_event",
    ],
)
async def test_the_database_refuses_to_change_what_is_recorded(
    trail: AuditTrail, postgres: EmbeddedPostgres, change: str
) -> None:
    await trail.record([event(1)])
    connection = await asyncpg.connect(postgres.dsn)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await connection.execute(change)
    await connection.close()
    assert len((await trail.events()).events) == 1


async def test_many_workers_may_start_on_an_empty_database_at_once(
    trail: AuditTrail, postgres: EmbeddedPostgres
) -> None:
    trails = [AuditTrail(postgres.dsn) for _ in range(8)]
    await asyncio.gather(*(each.record([event(number)]) for number, each in enumerate(trails)))
    assert len((await trail.events()).events) == len(trails)
    await asyncio.gather(*(each.close() for each in trails))


async def test_a_role_that_may_only_insert_and_read_is_enough_once_the_table_is_there(
    trail: AuditTrail, postgres: EmbeddedPostgres
) -> None:
    await trail.record([event(1)])
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute("DROP ROLE IF EXISTS writer; CREATE ROLE writer LOGIN PASSWORD 'w'")
    await connection.execute("GRANT USAGE ON SCHEMA relight TO writer")
    await connection.execute("GRANT SELECT, INSERT ON relight.audit_event TO writer")
    await connection.close()
    writer = AuditTrail(f"postgresql://writer:w@127.0.0.1:{postgres.record.port}/relight?sslmode=disable")
    await writer.record([event(2)])
    await writer.close()
    assert len((await trail.events()).events) == 2


async def test_bytes_that_postgres_refuses_are_replaced_and_the_rest_is_kept(trail: AuditTrail) -> None:
    line = Evidence(source="/logs/17.out", text="loss\x00nan \\u0000 kept")
    symptom = Symptom(kind=SymptomKind.CRASH, detected_at=NOON, summary="a\x00b", evidence=(line,))
    await trail.record([event(1, summary="NUL \x00 in a line", symptom=symptom, details={"k\x00": ["v\x00"]})])
    (stored,) = (await trail.events()).events
    assert stored.summary == "NUL \N{REPLACEMENT CHARACTER} in a line"
    assert stored.symptom is not None
    assert stored.symptom.evidence[0].text == "loss\N{REPLACEMENT CHARACTER}nan \\u0000 kept"
    assert stored.details == {"k\N{REPLACEMENT CHARACTER}": ["v\N{REPLACEMENT CHARACTER}"]}


async def test_nothing_is_lost_while_postgres_is_away() -> None:
    with open_directory() as directory:
        async with EmbeddedPostgres(directory / "postgres") as server:
            trail = AuditTrail(server.dsn)
            await trail.record([event(1)])
            await server.stop()
            with pytest.raises(AuditUnavailable, match="did not take the audit events"):
                await trail.record([event(2)])
            await server.start()
            await trail.record([event(2)])
            assert len((await trail.events()).events) == 2
            await trail.close()


async def test_the_activity_asks_temporal_to_try_again_while_postgres_is_away() -> None:
    activities = AuditActivities(AuditTrail("postgresql://relight@127.0.0.1:1/relight?sslmode=disable"))
    with pytest.raises(ApplicationError) as refused:
        await ActivityEnvironment().run(activities.record_audit, [event(1)])
    assert refused.value.type == "AuditUnavailable"
    assert not refused.value.non_retryable


async def test_the_activity_stores_what_it_is_given(trail: AuditTrail) -> None:
    await ActivityEnvironment().run(AuditActivities(trail).record_audit, [event(1), event(2)])
    assert len((await trail.events()).events) == 2


async def test_without_a_database_the_activity_leaves_the_record_to_the_workflows_history() -> None:
    await ActivityEnvironment().run(AuditActivities(None).record_audit, [event(1)])


@given(st.text())
def test_a_summary_is_never_longer_than_its_limit(summary: str) -> None:
    assert len(event(1, summary=summary * 3).summary) <= 500


@pytest.mark.parametrize("details", [{"text": "x" * 20_000}, {"loss": float("nan")}])
def test_details_that_would_not_fit_a_row_are_refused_where_they_are_made(details: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        event(1, details=details)
