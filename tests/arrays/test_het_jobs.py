"""A het job is one job: its leader stands for all components, and exclusions are kept by every component that can."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.adopt import Selection
from activities.discovery import wanted
from activities.scheduler.protocol import JobFlag, JobRecord, JobState
from activities.scheduler.squeue_json import read_jobs
from activities.scheduler.steps import ActOrder, Sent, Step, list_changes, next_step
from recovery.model import Action, Advice, JobKey, Reconciliation

NOW = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)
SUBMITTED_AT = NOW - timedelta(minutes=1)
ACT = '{"relight": {"mode": "act"}}'


def read(*parts: dict[str, Any]) -> tuple[JobRecord, ...]:
    """The het job 6 of `parts`, as squeue tells of it."""
    jobs = [
        {
            "job_id": 6 + offset,
            "het_job_id": 6,
            "job_state": "PENDING",
            "comment": ACT,
            "submit_time": int(SUBMITTED_AT.timestamp()),
            "restart_cnt": 1,
            "node_count": 1,
            **part,
        }
        for offset, part in enumerate(parts)
    ]
    return read_jobs(
        json.dumps({"errors": [], "jobs": [*reversed(jobs), jobs[0] | {"job_id": 5, "het_job_id": 0}]}), NOW
    )


def leader(*parts: dict[str, Any]) -> JobRecord:
    return next(record for record in read(*parts) if record.job_id == "6")


def order(*exclude: str, withdraw: tuple[str, ...] = ()) -> ActOrder:
    advice = Advice(
        job=JobKey(cluster="c1", job_id="6", submitted_at=SUBMITTED_AT),
        attempt=0,
        generation=1,
        action=Action.RESTART_EXCLUDE,
        exclude=exclude,
        reason="bad",
        rule="culprit_named",
        advised_at=NOW,
        expires_at=NOW + timedelta(minutes=15),
    )
    return ActOrder(advice=advice, submitted_at=SUBMITTED_AT, withdraw=withdraw)


def test_the_leader_has_the_nodes_of_all_components_in_their_order() -> None:
    job = leader(
        {"job_state": "RUNNING", "nodes": "node05", "partition": "cpu"},
        {"job_state": "RUNNING", "nodes": "node[02-03]", "node_count": 2, "partition": "gpu"},
        {"job_state": "RUNNING", "nodes": "node01", "partition": "gpu"},
    )
    assert job.nodes == ("node05", "node02", "node03", "node01")
    assert job.node_count == 4
    assert job.partitions == {"cpu", "gpu"}
    assert [part.job_id for part in job.components] == ["6", "7", "8"]


def test_one_workflow_guards_the_whole() -> None:
    assert [job.job_id for job in read({}, {}, {}) if wanted(job, Selection(cluster="c1"))] == ["6", "5"]


def test_a_job_without_components_is_read_as_ever() -> None:
    job = next(job for job in read({}, {}) if job.job_id == "5")
    assert job.components == ()
    assert job.partitions == {""}


def test_the_whole_is_completing_while_one_component_is() -> None:
    assert JobFlag.COMPLETING in leader({}, {"job_state": ["PENDING", "COMPLETING"]}).flags


def test_components_that_share_a_list_are_constrained_through_the_leader() -> None:
    job = leader({"excluded_nodes": "node08"}, {"excluded_nodes": "node08", "required_nodes": "node07"})
    assert list_changes(job, order("node02", "node07")) == {"6": ("node02", "node08")}
    assert list_changes(leader({"excluded_nodes": "node02"}, {"excluded_nodes": "node02"}), order("node02")) == {}


def test_what_the_user_wants_of_each_component_is_kept() -> None:
    parts: tuple[dict[str, Any], ...] = ({}, {"excluded_nodes": "node08"}, {"excluded_nodes": "node03"})
    changes = list_changes(leader(*parts), order("node02", withdraw=("node03",)))
    assert changes == {"7": ("node02", "node08"), "8": ("node02", "node03")}


def test_a_component_that_could_not_be_kept_off_is_told_of() -> None:
    job = leader({}, {"excluded_nodes": "node02,node08"})
    seen = next_step(job, order("node02"), NOW, sent=Sent.NOTHING)
    assert isinstance(seen, Reconciliation)
    assert seen.excluded == ()
    assert seen.detail.startswith("the components of this het job have exclusion lists of their own")
    assert seen.detail.endswith("may still get node02")


def test_a_whole_that_is_constrained_in_all_components_has_converged() -> None:
    job = leader({"excluded_nodes": "node02,node04"}, {"excluded_nodes": "node02"})
    assert job.state is JobState.PENDING
    seen = next_step(job, order("node02"), NOW, sent=Sent.NOTHING)
    assert isinstance(seen, Reconciliation)
    assert seen.excluded == ("node02",)
    assert next_step(leader({}, {}), order("node02"), NOW, sent=Sent.NOTHING) is Step.CONSTRAIN
