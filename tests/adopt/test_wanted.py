"""Which jobs are looked after."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.adopt import Selection
from activities.discovery import wanted
from activities.scheduler.protocol import JobRecord, JobState
from recovery.model import Mode

ACT = '{"relight": {"mode": "act"}}'
PROD = '{"nvidia-recovery": {"environment": "prod", "mode": "observe"}}'

MALFORMED = (
    '{"relight": {"mode": "act"}',
    "{'relight': {'mode': 'act'}}",
    '{"relight": {"mode": "acct"}}',
    '{"relight": {"moed": "act"}}',
    '{"relight": {"mode": ["act"]}}',
    '{"relight": "act"}',
    '{"relight": {"mode": "act", "hang_after_s": -1}}',
    '{"relight": {"mode": "act", "progress_pattern": "step ("}}',
    '{"relight": {"mode": "act", "max_restarts": 1e99}}',
    '["relight", {"mode": "act"}]',
    '{"relight": {"mode": "act"}, "padding": "' + "x" * 10_000 + '"}',
    '{"relight": ' + "[" * 2_000 + "]" * 2_000 + "}",
    '{"relight": null}',
)
"""Comments that mean us and can't be read."""


def record(state: JobState = JobState.RUNNING, **facts: Any) -> JobRecord:
    known = {"job_id": "7", "partition": "gpu", "submitted_at": datetime(2026, 3, 1, tzinfo=UTC), "comment": ACT}
    return JobRecord(state=state, **{**known, **facts})


@pytest.mark.parametrize(
    "state", [state for state in JobState if state not in (JobState.COMPLETED, JobState.CANCELLED)]
)
def test_an_opted_in_job_is_wanted_from_its_submission_to_its_failure(state: JobState) -> None:
    optin = wanted(record(state), Selection(cluster="c1"))
    assert optin is not None
    assert optin.mode is Mode.ACT


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_a_job_that_completed_or_was_cancelled_is_left_alone(state: JobState) -> None:
    assert wanted(record(state), Selection(cluster="c1")) is None


@pytest.mark.parametrize(
    "comment", ["", "relight my fire", "my run", '{"wandb": {"mode": "act"}}', "null", "{" * 9_000]
)
def test_a_job_that_did_not_opt_in_is_left_alone(comment: str) -> None:
    assert wanted(record(comment=comment), Selection(cluster="c1")) is None


@pytest.mark.parametrize("comment", MALFORMED)
def test_a_job_whose_comment_cannot_be_read_is_wanted_in_observe_mode_with_a_warning(comment: str) -> None:
    optin = wanted(record(comment=comment), Selection(cluster="c1"))
    assert optin is not None
    assert optin.mode is Mode.OBSERVE
    assert "comment can't be used" in optin.warning
    assert len(optin.warning) < 600


def test_only_the_leader_of_a_het_job_is_wanted() -> None:
    selection = Selection(cluster="c1")
    assert wanted(record(het_leader_id="7"), selection) is not None
    assert wanted(record(job_id="8", het_leader_id="7"), selection) is None


def test_tasks_of_an_array_are_wanted_and_what_stands_for_many_of_them_is_not() -> None:
    selection = Selection(cluster="c1")
    assert wanted(record(job_id="7_3", array_job_id="7"), selection) is not None
    assert wanted(record(JobState.PENDING, job_id="7", array_job_id="7"), selection) is None


def test_only_the_chosen_partitions_are_looked_after() -> None:
    selection = Selection(cluster="c1", partitions=("gpu", "gpu-large"))
    assert wanted(record(partition="gpu-large"), selection) is not None
    assert wanted(record(partition="cpu"), selection) is None


@pytest.mark.parametrize(
    ("environment", "comment", "is_wanted"),
    [("", PROD, True), ("prod", PROD, True), ("test", PROD, False), ("test", ACT, True), ("prod", MALFORMED[0], True)],
)
def test_jobs_that_name_another_environment_are_left_alone(environment: str, comment: str, is_wanted: bool) -> None:
    selection = Selection(cluster="c1", environment=environment)
    assert (wanted(record(comment=comment), selection) is not None) is is_wanted
