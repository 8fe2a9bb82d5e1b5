"""The version of the interface that both sides know, the newest of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.rest_versions import KNOWN, newest_known


def offering(*paths: str) -> str:
    return json.dumps({"openapi": "3.0.3", "paths": dict.fromkeys(paths)})


def test_slurm_22_05_offers_one_that_can_only_be_read() -> None:
    version = newest_known(offering("/slurm/v0.0.38/jobs", "/slurm/v0.0.38/job/{job_id}", "/openapi/v3"), "it")
    assert (version.name, version.updates, version.requeues, version.accounts) == ("v0.0.38", False, False, False)


def test_slurm_24_11_offers_three_of_which_the_newest_changes_jobs_and_requeues_none() -> None:
    paths = [f"/slurm/v0.0.{number}/jobs/" for number in (42, 40, 41)]
    version = newest_known(offering(*paths, "/slurmdb/v0.0.42/user/{name}"), "it")
    assert (version.name, version.updates, version.requeues, version.accounts) == ("v0.0.42", True, False, True)


def test_slurm_26_05_offers_one_that_requeues() -> None:
    paths = ("/slurm/v0.0.44/jobs/", "/slurm/v0.0.45/jobs/", "/slurm/v0.0.45/jobs/requeue", "/slurm/v0.0.45/conf")
    version = newest_known(offering(*paths), "it")
    assert (version.name, version.updates, version.requeues, version.configures) == ("v0.0.45", True, True, True)


def test_one_that_is_newer_than_relight_is_left_for_one_that_both_know() -> None:
    assert newest_known(offering("/slurm/v0.0.99/jobs/", "/slurm/v0.0.45/jobs/"), "it").name == "v0.0.45"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            offering("/slurm/v0.0.99/jobs/"),
            r"it offers v0.0.99, and relight knows v0.0.38 to v0.0.45: .* newer",
        ),
        (offering("/openapi"), "it offers no version of its interface"),
        ('{"swagger": "2.0"}', "it does not describe its interface"),
        ("<html>", "is it slurmrestd"),
        ("", "is it slurmrestd"),
    ],
)
def test_without_a_common_version_it_says_what_is_offered(text: str, words: str) -> None:
    with pytest.raises(SchedulerUnavailable, match=words):
        newest_known(text, "it")


@given(st.sets(st.integers(min_value=0, max_value=120)))
def test_the_newest_common_one_is_chosen_whatever_is_offered(numbers: set[int]) -> None:
    text = offering(*(f"/slurm/v0.0.{number}/jobs/" for number in numbers))
    common = [name for name in KNOWN if int(name.split(".")[-1]) in numbers]
    if common:
        assert newest_known(text, "it").name == common[-1]
    else:
        with pytest.raises(SchedulerUnavailable):
            newest_known(text, "it")
