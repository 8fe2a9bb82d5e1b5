"""What Slurm says when a command fails, and which of the protocol's errors that is."""

from __future__ import annotations

import pytest

from activities.scheduler.protocol import (
    Invalid,
    JobUnknown,
    NotPending,
    NotPermitted,
    Refused,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.slurm_words import error_from


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_jobs error: Invalid job id specified", JobUnknown),
        ("Access/permission denied for job 7", NotPermitted),
        ("Job is no longer pending execution for job 7", NotPending),
        ("Job is pending execution for job 7", Refused),
        ("Invalid node name specified for job 7", Invalid),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", Invalid),
        ("error: Batch job submission failed: Requested time limit is invalid (missing or exceeds limit)", Invalid),
        ("Requested operation is presently disabled for job 7", Refused),
        ("Unable to contact slurm controller (connect failure)", SchedulerUnavailable),
        ("Socket timed out on send/recv operation", SchedulerUnavailable),
        ("words of a version to come", SchedulerUnavailable),
        ("", SchedulerUnavailable),
    ],
)
def test_what_slurm_says_is_one_kind_of_error(said: str, kind: type[SchedulerError]) -> None:
    error = error_from(said, about="constraining job 7")

    assert type(error) is kind
    assert str(error).startswith("constraining job 7: ")


def test_whoever_handles_a_refusal_also_handles_its_kinds() -> None:
    assert issubclass(NotPending, Refused)
    assert issubclass(Invalid, Refused)
