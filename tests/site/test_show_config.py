"""What a site's configuration says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.show_config import ConfigError, read_facts, zone_of
from activities.scheduler.site import Answer, Controller, Known, SiteFacts, Unknown
from tests.site.answers import answer

ASKED_AT = datetime(2023, 8, 2, 15, 34, 20, tzinfo=UTC)
PING = "Slurmctld(primary) at h4slurm is UP\nSlurmctld(backup1) at h4slurmdb is DOWN\n"


def facts_of(config: str, ping: str = PING) -> SiteFacts:
    return read_facts(config, ping, UTC, ASKED_AT)


def test_the_configuration_of_another_site_is_read() -> None:
    facts = facts_of(answer("config.txt"))

    assert facts.slurm_version == Known(value="23.02.2")
    assert facts.min_job_age == Known(value=timedelta(seconds=50))
    assert facts.kill_wait == Known(value=timedelta(seconds=30))
    assert facts.requeue_delay == Known(value=timedelta(seconds=121))
    assert facts.preempt_mode == Known(value=frozenset({"REQUEUE"}))
    assert facts.job_requeue == Known(value=True)
    assert facts.max_batch_requeue == Known(value=5)
    assert facts.accounting_store_flags == Known(value=frozenset())
    assert facts.slurm_user == Known(value="slurm")
    assert facts.clock_skew == Known(value=timedelta(seconds=-1))
    assert isinstance(facts.scheduler_parameters, Known)
    assert "nohold_on_prolog_fail" in facts.scheduler_parameters.value
    assert facts.has_accounting is Answer.YES


def test_each_controller_answers_or_does_not() -> None:
    assert facts_of(answer("config.txt")).controllers == Known(
        value=(
            Controller(host="h4slurm", role="primary", answers=Answer.YES),
            Controller(host="h4slurmdb", role="backup1", answers=Answer.NO),
        )
    )
    assert isinstance(facts_of(answer("config.txt"), "").controllers, Unknown)


def test_what_a_version_does_not_print_is_unknown_and_not_a_default() -> None:
    facts = facts_of("ClusterName = alpha\nKillWait = soon\n")

    assert isinstance(facts.min_job_age, Unknown)
    assert "MinJobAge" in facts.min_job_age.why
    assert isinstance(facts.kill_wait, Unknown)
    assert "soon" in facts.kill_wait.why
    assert facts.has_accounting is Answer.UNKNOWN


def test_a_credential_that_lives_shorter_shortens_the_requeue_delay() -> None:
    facts = facts_of("ClusterName = a\nAuthInfo = socket=/run/munge.socket,cred_expire=30\n")

    assert facts.requeue_delay == Known(value=timedelta(seconds=31))


def test_a_requeue_delay_of_its_own_goes_before_the_credentials_life() -> None:
    facts = facts_of("ClusterName = a\nAuthInfo = cred_expire=30\nSchedulerParameters = defer,requeue_delay=5\n")

    assert facts.requeue_delay == Known(value=timedelta(seconds=6))


@pytest.mark.parametrize(
    ("first_line", "offset_h"),
    [
        ("Configuration data as of 2023-08-02T15:34:19", 0),
        ("Configuration data as of 2023-08-03T00:34:19", 9),
        ("Configuration data as of 2023-08-02T10:04:19", -5.5),
        ("Configuration data as of 1690990459", 0),
        ("nothing", 0),
    ],
)
def test_the_zone_of_a_login_host_is_told_by_its_clock(first_line: str, offset_h: float) -> None:
    assert zone_of(f"{first_line}\nA = 1", ASKED_AT).utcoffset(None) == timedelta(hours=offset_h)


@pytest.mark.parametrize("text", ["", "Unable to contact slurm controller", "A = 1"])
def test_another_text_is_no_configuration(text: str) -> None:
    with pytest.raises(ConfigError):
        facts_of(text)


@given(st.binary(max_size=300), st.text(alphabet="SLURM_VERSION ClusterNameMinJobAge=0123 sec\n", max_size=200))
def test_any_bytes_are_facts_or_no_configuration(noise: bytes, lines: str) -> None:
    config = f"{lines}\nClusterName = a\n{noise.decode(errors='replace')}"

    assert isinstance(facts_of(config, lines), SiteFacts)
