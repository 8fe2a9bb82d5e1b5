"""A recovery's trace, received by a real OTLP/HTTP receiver."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.telemetry import TraceExporter
from recovery.model import JobKey, Milestone, MilestoneKind
from recovery.trace import RecoveryTrace
from tests.telemetry.receiver import Receiver

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
JOB = JobKey(cluster="alpha", job_id="17", submitted_at=NOON)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def milestone(kind: MilestoneKind, attempt: int, second: float, detail: str = "") -> Milestone:
    return Milestone(kind=kind, attempt=attempt, at=NOON + timedelta(seconds=second), detail=detail)


RECOVERED = (
    milestone(MilestoneKind.ADOPTED, 0, 0),
    milestone(MilestoneKind.DETECTED, 0, 100, "crash"),
    milestone(MilestoneKind.ATTRIBUTED, 0, 100.5, "gpu_fallen_off_bus"),
    milestone(MilestoneKind.ADVISED, 0, 101),
    milestone(MilestoneKind.ACTED, 0, 103),
    milestone(MilestoneKind.ELIGIBLE, 0, 104),
    milestone(MilestoneKind.ALLOCATED, 1, 110),
    milestone(MilestoneKind.RESUMED, 1, 170),
)


def trace(**attributes: str) -> RecoveryTrace:
    recovered = RecoveryTrace.of(JOB, 1, 1, RECOVERED, attributes)
    assert recovered is not None
    return recovered


async def export(exporter: TraceExporter, recovery: RecoveryTrace) -> None:
    await ActivityEnvironment().run(exporter.export_recovery_trace, recovery)


async def test_a_recovery_arrives_as_one_root_span_and_a_child_for_each_step(receiver: Receiver) -> None:
    exporter = TraceExporter(receiver.address)
    await export(exporter, trace(category="hardware_gpu"))
    exporter.close()
    root, *steps = receiver.spans
    assert root.name == "recover alpha/17"
    assert (root.end_time_unix_nano - root.start_time_unix_nano) == 70 * 10**9
    attributes = {each.key: each.value.string_value or each.value.int_value for each in root.attributes}
    assert attributes["relight.workflow_id"] == "recovery/alpha/17"
    assert attributes["relight.category"] == "hardware_gpu"
    assert [step.name for step in steps] == [
        "attribute",
        "decide",
        "act",
        "wait until eligible",
        "wait for nodes",
        "start up and resume",
    ]
    assert {step.parent_span_id for step in steps} == {root.span_id}
    assert {span.trace_id for span in receiver.spans} == {root.trace_id}
    assert sum(step.end_time_unix_nano - step.start_time_unix_nano for step in steps) == 70 * 10**9
    resource = receiver.requests[0].resource_spans[0].resource
    assert {"relight"} == {each.value.string_value for each in resource.attributes if each.key == "service.name"}


async def test_an_export_that_is_tried_again_tells_of_the_same_spans(receiver: Receiver) -> None:
    for _ in range(2):
        exporter = TraceExporter(f"{receiver.address}/")
        await export(exporter, trace())
        exporter.close()
    first, second = receiver.requests
    assert first == second


async def test_another_job_under_a_reused_id_has_a_trace_of_its_own(receiver: Receiver) -> None:
    exporter = TraceExporter(receiver.address)
    reused = JOB.model_copy(update={"submitted_at": NOON + timedelta(days=300)})
    await export(exporter, trace())
    await export(exporter, trace().model_copy(update={"job": reused}))
    exporter.close()
    assert len({span.trace_id for span in receiver.spans}) == 2


async def test_a_receiver_that_refuses_makes_temporal_try_again(receiver: Receiver) -> None:
    receiver.status = 400
    exporter = TraceExporter(receiver.address)
    with pytest.raises(ApplicationError) as refused:
        await export(exporter, trace())
    assert refused.value.type == "TelemetryUnavailable"
    assert not refused.value.non_retryable
    receiver.status = 200
    await export(exporter, trace())
    exporter.close()
    assert len(receiver.requests) == 1


async def test_without_an_endpoint_nothing_is_sent() -> None:
    exporter = TraceExporter("")
    await export(exporter, trace())
    exporter.close()


def test_an_attempt_that_no_failure_came_before_is_no_recovery() -> None:
    assert RecoveryTrace.of(JOB, 0, 0, RECOVERED) is None
    assert RecoveryTrace.of(JOB, 1, 0, (milestone(MilestoneKind.ADOPTED, 0, 0),)) is None


def test_a_second_recovery_does_not_tell_of_the_first() -> None:
    again = (
        *RECOVERED,
        milestone(MilestoneKind.DETECTED, 1, 900),
        milestone(MilestoneKind.ACTED, 1, 905),
        milestone(MilestoneKind.RESUMED, 2, 960),
    )
    second = RecoveryTrace.of(JOB, 2, 2, again)
    assert second is not None
    assert second.attempt == 1
    assert [step.name for step in second.steps] == ["act", "start up and resume"]


def test_an_attempt_that_died_before_it_resumed_belongs_to_the_recovery_that_begins_with_it() -> None:
    again = (
        *RECOVERED[:-1],
        milestone(MilestoneKind.DETECTED, 1, 120),
        milestone(MilestoneKind.RESUMED, 2, 200),
    )
    recovery = RecoveryTrace.of(JOB, 2, 2, again)
    assert recovery is not None
    assert recovery.milestones[0].at == NOON + timedelta(seconds=120)


@given(
    st.lists(
        st.builds(milestone, st.sampled_from(MilestoneKind), st.integers(0, 3), st.floats(0, 10_000)),
        max_size=30,
    )
)
def test_steps_follow_each_other_without_gap_whatever_the_clocks_said(reached: list[Milestone]) -> None:
    recovery = RecoveryTrace.of(JOB, 4, 1, [milestone(MilestoneKind.DETECTED, 0, 0), *reached])
    assert recovery is not None
    assert all(step.start <= step.end for step in recovery.steps)
    assert all(before.end == after.start for before, after in zip(recovery.steps, recovery.steps[1:], strict=False))
    assert RecoveryTrace.model_validate_json(recovery.model_dump_json()) == recovery
