"""Daemons and exporters know a task of an array by its own number, which is not the array's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, MetricSample
from recovery.model import Verdict

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TASK = JobFacts(job_id="17_3", job_number="20", nodes=("node01", "node02"), state="FAILED", exit_code=1)


@pytest.mark.parametrize(
    ("facts", "told", "ours"),
    [
        (TASK, "20", True),
        (TASK, "17_3", True),
        (TASK, "17", False),
        (TASK, "21", False),
        (JobFacts(job_id="17_3"), "17", True),
        (JobFacts(job_id="17_3"), "20", False),
        (JobFacts(job_id="12", job_number="12"), "12", True),
        (JobFacts(), "12", True),
    ],
)
def test_a_job_is_known_by_its_id_and_by_its_number(facts: JobFacts, told: str, ours: bool) -> None:
    assert facts.is_named(told) is ours


def of_a_gpu(job: str) -> Verdict:
    """What is made of a GPU's last-Xid gauge that changes, in a series of that job."""
    text = 'DCGM_FI_DEV_XID_ERRORS{{gpu="0",Hostname="node02",hpc_job="{job}"}} {value}'
    at = [datetime(2026, 3, 1, 11, minute, tzinfo=UTC) for minute in (57, 58, 59)]
    samples = tuple(
        MetricSample(text=text.format(job=job, value=value), host="node02", at=when)
        for when, value in zip(at, (0, 0, 79), strict=True)
    )
    return attribute(Incident(lines=(), metrics=samples, facts=TASK, now=NOW))


def test_gpu_evidence_of_a_task_counts_and_that_of_another_task_does_not() -> None:
    assert of_a_gpu("20").culprits == ("node02",)
    assert of_a_gpu("19").culprits == ()
