"""Filename patterns, as a real slurmd expanded them."""

from __future__ import annotations

import pytest

from activities.scheduler.filename_pattern import BatchFile, expanded_path

JOB = BatchFile("33", "", "", "my job", "alice", "node01.cluster.site", "/work")
TASK = BatchFile("25", "21", "7", "arr", "alice", "node01", "/work")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("", "/work/slurm-33.out"),
        ("out.log", "/work/out.log"),
        ("/logs/%x-%j.log", "/logs/my job-33.log"),
        (
            "p-%j-%5j-%A-%a-%J-%N-%n-%s-%t-%u-%x-%%-%z-%D.log",
            "/work/p-33-00033-33-4294967294-33-node01-0-batch-0-alice-my job-%-%z-%D.log",
        ),
        ("w-%12j-%0j-%3x-%2u-%5s-%5t", "/work/w-0000000033-33-my job-alice-batch-00000"),
        ("a b%%j%.log", "/work/a b%j%.log"),
        (r"back\\slash-%j.log", r"/work/back\slash-%j.log"),
        (r"back\slash\\-%j.log", r"/work/backslash\-%j.log"),
        ("sub/../q-%j.log", "/work/sub/../q-33.log"),
        ("/dev/null", ""),
    ],
)
def test_a_pattern_names_the_file_that_slurm_opened(pattern: str, path: str) -> None:
    assert expanded_path(pattern, JOB) == path


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("", "/work/slurm-21_7.out"), ("q-%j-%A-%3a.log", "/work/q-25-21-007.log")],
)
def test_an_array_task_has_its_own_file(pattern: str, path: str) -> None:
    assert expanded_path(pattern, TASK) == path


def test_a_file_named_after_its_host_is_not_known_before_the_job_has_one() -> None:
    pending = JOB._replace(batch_host="")
    assert expanded_path("%N-%j.log", pending) == ""
    assert expanded_path("%%N-%j.log", pending) == "/work/%N-33.log"


def test_a_relative_path_without_a_working_directory_names_no_file() -> None:
    assert expanded_path("out.log", JOB._replace(work_dir="")) == ""
