"""What a site's configuration means, judged without a site."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.scheduler.site import Answer, Capabilities, Capability, Controller, Known, SiteFacts, Unknown
from recovery.model import Mode
from workers.doctor.checks import Finding
from workers.doctor.slurm_facts import check_capabilities, check_facts
from workers.settings import ClusterSettings

CLUSTER = ClusterSettings(name="alpha")
NOT_TOLD = Unknown(why="this interface has no configuration")
KNOWN: dict[str, Any] = {
    "slurm_version": Known(value="24.11.5"),
    "cluster_name": Known(value="alpha"),
    "min_job_age": Known(value=timedelta(seconds=300)),
    "requeue_delay": Known(value=timedelta(seconds=121)),
    "kill_wait": Known(value=timedelta(seconds=30)),
    "preempt_mode": Known(value=frozenset({"OFF"})),
    "job_requeue": Known(value=True),
    "max_batch_requeue": Known(value=5),
    "accounting_storage_type": Known(value="accounting_storage/slurmdbd"),
    "accounting_store_flags": Known(value=frozenset({"job_comment"})),
    "scheduler_parameters": Known(value=()),
    "controllers": Known(value=(Controller(host="ctl", role="primary", answers=Answer.YES),)),
    "clock_skew": Known(value=timedelta(seconds=1)),
}


def facts(**changes: Any) -> SiteFacts:
    return SiteFacts(**(KNOWN | changes))


def findings(of: SiteFacts, cluster: ClusterSettings = CLUSTER) -> dict[str, Finding]:
    return {check.name: check.finding for check in check_facts(of, cluster) if check.finding is not Finding.OK}


def test_a_site_that_is_well_is_well() -> None:
    assert findings(facts()) == {}


def test_what_a_site_does_not_tell_is_unknown_and_never_failed() -> None:
    silent = SiteFacts(**dict.fromkeys(KNOWN, NOT_TOLD))

    assert set(findings(silent).values()) == {Finding.UNKNOWN}


@pytest.mark.parametrize(
    ("changes", "name", "finding"),
    [
        ({"min_job_age": Known(value=timedelta(seconds=60))}, "MinJobAge", Finding.FAILED),
        ({"clock_skew": Known(value=timedelta(seconds=-90))}, "clock", Finding.FAILED),
        ({"preempt_mode": Known(value=frozenset({"GANG", "SUSPEND"}))}, "PreemptMode", Finding.WARNING),
        ({"slurm_version": Known(value="of our own")}, "version", Finding.UNKNOWN),
        ({"slurm_version": Known(value="21.08.8")}, "version", Finding.FAILED),
        ({"max_batch_requeue": Known(value=0)}, "MaxBatchRequeue", Finding.WARNING),
    ],
)
def test_one_thing_that_is_wrong_is_one_finding(changes: dict[str, Any], name: str, finding: Finding) -> None:
    assert findings(facts(**changes)) == {name: finding}


def test_a_memory_without_limit_is_no_short_one() -> None:
    assert findings(facts(min_job_age=Known(value=timedelta()))) == {}


def test_the_slower_relight_looks_the_longer_ended_jobs_must_stay() -> None:
    slow = CLUSTER.model_copy(update={"poll_interval_s": 200.0})

    assert findings(facts(), slow) == {"MinJobAge": Finding.FAILED}


@pytest.mark.parametrize(("mode", "finding"), [(Mode.ACT, Finding.FAILED), (Mode.OBSERVE, Finding.WARNING)])
def test_rights_that_are_missing_fail_where_acts_are_wanted(mode: Mode, finding: Finding) -> None:
    cluster = CLUSTER.model_copy(update={"mode": mode, "acknowledge_scheduler_actions": True})
    none = Capability.no("relight has no AdminLevel: sacctmgr modify user where name=relight set adminlevel=admin")
    can = Capabilities.all_unknown("").model_copy(
        update={"requeue": none, "hold": none, "exclude": none, "admin_comment": none, "accounting": Capability.yes()}
    )

    checks = {check.name: check for check in check_capabilities(can, facts(), cluster)}

    assert checks["rights"].finding == checks["AdminComment"].finding == finding
    assert checks["rights"].remedy.startswith("sacctmgr modify user")


def test_an_account_that_can_not_submit_for_others_is_found_where_the_policy_wants_that() -> None:
    wanting = CLUSTER.model_copy(update={"policy": CLUSTER.policy.model_copy(update={"resubmit": True})})
    none = Capability.no("the forced command refuses sbatch: give it --submit")
    can = Capabilities.all_unknown("?").model_copy(update={"submit_for_others": none, "accounting": Capability.yes()})

    checks = {check.name: check for check in check_capabilities(can, facts(), wanting)}

    assert (checks["resubmission"].finding, checks["resubmission"].remedy) == (Finding.WARNING, "give it --submit")
    assert "the forced command refuses sbatch" in checks["resubmission"].says
    assert "resubmission" not in {check.name for check in check_capabilities(can, facts(), CLUSTER)}


def test_a_way_that_does_not_ask_slurmdbd_says_nothing_of_whether_it_runs() -> None:
    for accounting, finding, remedy in (
        (Capability.no("accounts are not read this way: use another"), Finding.WARNING, "use another"),
        (Capability.unknown("slurmdbd does not answer: refused"), Finding.FAILED, "start slurmdbd"),
    ):
        can = Capabilities.all_unknown("?").model_copy(update={"accounting": accounting})
        checks = {check.name: check for check in check_capabilities(can, facts(), CLUSTER)}
        assert checks["slurmdbd"].finding is finding
        assert remedy in checks["slurmdbd"].remedy


def test_jobs_that_are_hidden_from_an_account_without_rights_are_found() -> None:
    hidden = facts(private_data=Known(value=frozenset({"jobs"})))
    checks = {check.name: check for check in check_capabilities(Capabilities.all_unknown("?"), hidden, CLUSTER)}

    assert checks["PrivateData"].finding is Finding.FAILED
