"""The pyslurm transport, with a module in pyslurm's place that has the surface of it that is used."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import (
    Hold,
    JobFlag,
    JobRecord,
    JobState,
    JobUnknown,
    NodeRecord,
    NotPending,
    NotPermitted,
    Refused,
    SchedulerUnavailable,
)
from activities.scheduler.site import Answer, Known, SiteReader, Unknown
from activities.scheduler.slurm_library import SlurmLibrary

FAKE = Path(__file__).with_name("fake_pyslurm.py")
SUBMITTED = 1_800_000_000
RUNNING: dict[str, Any] = {
    "id": 7,
    "array_id": None,
    "array_task_id": None,
    "array_tasks_waiting": None,
    "heterogeneous_id": None,
    "name": "train",
    "user_name": "ada",
    "partition": "main",
    "state": "RUNNING",
    "state_reason": "None",
    "priority": 4_294_901_756,
    "requeue_count": 1,
    "submit_time": SUBMITTED,
    "eligible_time": SUBMITTED,
    "start_time": SUBMITTED + 5,
    "end_time": SUBMITTED + 86_400,
    "allocated_nodes": "node[01-02]",
    "num_nodes": 2,
    "excluded_nodes": "node08",
    "required_nodes": None,
    "reservation": "night",
    "constraints": ["h100&ib"],
    "comment": "watch me",
    "admin_comment": None,
    "is_requeueable": True,
    "exit_code": 0,
    "exit_code_signal": 0,
    "is_batch_job": True,
    "batch_host": "node01",
    "standard_output": "/work/train-%j.log",
    "standard_error": None,
    "working_directory": "/work",
}
HELD = RUNNING | {
    "id": 8,
    "state": "PENDING",
    "state_reason": "job requeued in held state",
    "priority": 0,
    "start_time": None,
    "end_time": None,
    "allocated_nodes": None,
    "batch_host": None,
}
FAILED = RUNNING | {"id": 9, "state": "FAILED", "state_reason": "NonZeroExitCode", "exit_code": 3}
CLUSTER: dict[str, Any] = {
    "pyslurm": "25.11.2",
    "controller": "25.11.7",
    "config": {
        "cluster_name": "alpha",
        "min_job_age": 300,
        "kill_wait_time": 30,
        "preempt_mode": "OFF",
        "job_requeue": True,
        "max_batch_requeue": 5,
        "accounting_storage_type": "accounting_storage/slurmdbd",
        "accounting_store_flags": ["JOB_COMMENT", "JOB_SCRIPT"],
        "scheduler_parameters": {"requeue_delay": "10", "bf_continue": True},
        "auth_info": ["cred_expire=60"],
        "slurm_user_name": "slurm",
        "private_data": ["jobs"],
    },
    "pings": [
        {"hostname": "ctl1", "is_primary": True, "is_responding": True},
        {"hostname": "ctl2", "is_primary": False, "is_responding": False},
    ],
    "script": "#!/bin/sh\ntrue\n",
    "jobs": [RUNNING, HELD, FAILED],
    "nodes": [
        {
            "name": "node01",
            "state": "MIXED",
            "reason": None,
            "partitions": ["main", "other"],
            "available_features": ["h100", "ib"],
        },
        {
            "name": "node02",
            "state": "DOWN+DRAIN+NOT_RESPONDING",
            "reason": "smells",
            "partitions": [],
            "available_features": [],
        },
    ],
}


class Site:
    """A Python that has the module, and what was asked of it."""

    def __init__(self, directory: Path, cluster: dict[str, Any]) -> None:
        self._library = directory / "library"
        self._library.mkdir()
        shutil.copy(FAKE, self._library / "pyslurm.py")
        self.python = directory / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH={self._library} exec {sys.executable} "$@"\n')
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.become(cluster)

    def become(self, cluster: dict[str, Any]) -> None:
        (self._library / "cluster.json").write_text(json.dumps(cluster))

    def break_library(self, complaint: str) -> None:
        (self._library / "pyslurm.py").write_text(f"raise ImportError({complaint!r})")

    @property
    def changes(self) -> list[Any]:
        file = self._library / "changes.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def scheduler(self) -> SlurmLibrary:
        return self.as_account("root")

    def as_account(self, account: str) -> SlurmLibrary:
        return SlurmLibrary(LocalRunner(), python=str(self.python), account=account)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, CLUSTER)


async def test_jobs_are_read_in_bulk_and_one_by_one_alike(site: Site) -> None:
    running, held, failed = (await site.scheduler.jobs()).jobs

    assert running == await site.scheduler.job("7")
    assert running == JobRecord(
        job_id="7",
        job_number="7",
        name="train",
        user="ada",
        partition="main",
        state=JobState.RUNNING,
        reason="None",
        restart_count=1,
        submitted_at=datetime.fromtimestamp(SUBMITTED, UTC),
        eligible_at=datetime.fromtimestamp(SUBMITTED, UTC),
        started_at=datetime.fromtimestamp(SUBMITTED + 5, UTC),
        nodes=("node01", "node02"),
        node_count=2,
        excluded_nodes=("node08",),
        reservation="night",
        constraint="h100&ib",
        comment="watch me",
        batch_host="node01",
        stdout="/work/train-7.log",
        stderr="/work/train-7.log",
        work_dir="/work",
    )
    assert (held.state, held.hold, held.nodes) == (JobState.PENDING, Hold.REQUEUED, ())
    assert (failed.state, failed.exit_code) == (JobState.FAILED, 3)
    assert failed.ended_at == datetime.fromtimestamp(SUBMITTED + 86_400, UTC)


@pytest.mark.parametrize(("reason", "hold"), [("JobHeldUser", Hold.USER), ("JobHeldAdmin", Hold.ADMIN)])
async def test_a_persons_hold_is_told_from_ours(site: Site, reason: str, hold: Hold) -> None:
    site.become(CLUSTER | {"jobs": [HELD | {"state_reason": reason}]})
    assert (await site.scheduler.job("8")).hold is hold


async def test_a_job_that_is_still_completing_after_a_requeue_goes_back(site: Site) -> None:
    site.become(CLUSTER | {"jobs": [HELD | {"state": "COMPLETING"}]})
    job = await site.scheduler.job("8")
    assert (job.state, job.flags) == (JobState.PENDING, frozenset({JobFlag.COMPLETING}))


async def test_tasks_of_an_array_are_told_apart_even_the_one_numbered_0(site: Site) -> None:
    task = RUNNING | {"array_id": 10}
    rest = HELD | {"id": 10, "array_id": 10, "array_tasks_waiting": "3-5"}
    site.become(CLUSTER | {"jobs": [task | {"id": 11}, task | {"id": 12, "array_task_id": 2}, rest]})

    assert [job.job_id for job in (await site.scheduler.jobs()).jobs] == ["10_0", "10_2", "10"]
    assert (await site.scheduler.job("10_2")).array_job_id == "10"
    await site.scheduler.requeue_hold("10_0")
    assert site.changes == [["requeue", 11, {"hold": True}]]


async def test_the_task_with_its_arrays_number_is_requeued_alone_and_not_cancelled_with_all(site: Site) -> None:
    site.become(CLUSTER | {"jobs": [RUNNING | {"id": 10, "array_id": 10, "array_task_id": 3}]})

    await site.scheduler.requeue_hold("10_3")
    with pytest.raises(Refused, match="cancel all tasks"):
        await site.scheduler.cancel("10_3")

    assert site.changes == [["requeue", 10, {"hold": True}]]


async def test_bytes_that_are_not_utf8_are_replaced(site: Site) -> None:
    site.become(CLUSTER | {"jobs": [RUNNING | {"comment": "hex:61ff62"}]})
    assert (await site.scheduler.job("7")).comment == "a\N{REPLACEMENT CHARACTER}b"


async def test_nodes_are_read_with_their_states_and_partitions(site: Site) -> None:
    assert await site.scheduler.nodes() == (
        NodeRecord(
            name="node01",
            states=frozenset({"MIXED"}),
            partitions=frozenset({"main", "other"}),
            features=frozenset({"h100", "ib"}),
        ),
        NodeRecord(name="node02", states=frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"}), reason="smells"),
    )


async def test_each_verb_is_one_call_of_pyslurm(site: Site) -> None:
    scheduler = site.scheduler
    await scheduler.requeue_hold("7")
    await scheduler.requeue("9")
    await scheduler.constrain("8", exclude=("node01", "node08"), admin_comment='{"relight":"ü"}')
    await scheduler.release("8")
    await scheduler.start_now("8")
    await scheduler.allow_requeue("7")
    await scheduler.cancel("7")

    assert site.changes == [
        ["requeue", 7, {"hold": True}],
        ["requeue", 9, {"hold": False}],
        ["modify", 8, {"excluded_nodes": ["node01", "node08"], "admin_comment": '{"relight":"ü"}'}],
        ["release", 8, {}],
        ["modify", 8, {"begin_time": "now"}],
        ["modify", 7, {"is_requeueable": True}],
        ["cancel", 7, {}],
    ]


async def test_what_cannot_be_emptied_is_refused_and_what_is_empty_already_is_left(site: Site) -> None:
    with pytest.raises(Refused, match="excluded_nodes of job 8 cannot be emptied"):
        await site.scheduler.constrain("8", exclude=(), admin_comment="x")
    await site.scheduler.constrain("8", admin_comment="")
    assert site.changes == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Invalid job id specified", JobUnknown),
        ("Access/permission denied", NotPermitted),
        ("Job is no longer pending execution", NotPending),
        ("Job has already finished", Refused),
        ("Unable to contact slurm controller (connect failure)", SchedulerUnavailable),
    ],
)
async def test_what_slurm_says_when_it_refuses_becomes_the_same_error_as_with_its_commands(
    site: Site, said: str, kind: type[Exception]
) -> None:
    site.become(CLUSTER | {"refusals": {"modify": {"number": 2017, "refusal": said}}})
    with pytest.raises(kind, match=f"setting begin_time of job 8: {said[:20]}"):
        await site.scheduler.start_now("8")


async def test_an_unknown_job_is_unknown_to_reading_and_cancelling(site: Site) -> None:
    for attempt in (site.scheduler.job("404"), site.scheduler.job("10_1"), site.scheduler.cancel("404")):
        with pytest.raises(JobUnknown, match=r"404|10_1"):
            await attempt


async def test_an_old_error_of_the_process_does_not_make_a_cancelled_job_look_refused(site: Site) -> None:
    stale = {"number": 11, "refusal": "Resource temporarily unavailable"}
    site.become(CLUSTER | {"refusals": {"cancel 9": stale, "cancel 7": stale}})

    await site.scheduler.cancel("9")
    with pytest.raises(SchedulerUnavailable, match="cancelling job 7"):
        await site.scheduler.cancel("7")


async def test_another_release_than_the_sites_is_no_answer_and_says_which_is_needed(site: Site) -> None:
    site.become(CLUSTER | {"controller": "24.11.5"})
    with pytest.raises(
        SchedulerUnavailable, match=r"pyslurm 25\.11\.2 does not fit .* 24\.11\.5: install pyslurm 24\.11"
    ):
        await site.scheduler.jobs()


async def test_a_controller_that_does_not_speak_to_this_release_is_no_answer(site: Site) -> None:
    site.become(
        CLUSTER | {"controller": {"number": 1005, "refusal": "Protocol version has changed, re-link your code"}}
    )
    with pytest.raises(SchedulerUnavailable, match="must be pyslurm's: Protocol version has changed"):
        await site.scheduler.jobs()


async def test_a_python_without_pyslurm_is_no_answer_and_says_what_to_install(site: Site) -> None:
    site.break_library("libslurmfull-25.11.7.so: cannot open shared object file")
    with pytest.raises(SchedulerUnavailable, match=r"cannot import pyslurm \(libslurmfull.*install relight\[pyslurm\]"):
        await site.scheduler.jobs()


async def test_a_library_that_ends_its_process_ends_no_worker(site: Site) -> None:
    site.python.write_text("#!/bin/sh\necho 'fatal: Unable to process configuration file' >&2\nexit 1\n")
    with pytest.raises(SchedulerUnavailable, match="fatal: Unable to process configuration file"):
        await site.scheduler.jobs()


async def test_a_call_that_hangs_is_given_up(site: Site) -> None:
    site.python.write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(SchedulerUnavailable, match=r"did not answer within 0\.5 s"):
        await SlurmLibrary(LocalRunner(timeout_s=0.5), python=str(site.python)).jobs()


@pytest.mark.parametrize("text", ["1; reboot", "", "1\n", "٣", "all"])
async def test_what_is_no_job_id_is_never_asked_for(site: Site, text: str) -> None:
    for attempt in (site.scheduler.job(text), site.scheduler.cancel(text), site.scheduler.release(text)):
        with pytest.raises(JobUnknown, match="not a job id"):
            await attempt
    assert site.changes == []


async def test_the_site_tells_of_itself(site: Site) -> None:
    facts = await site.scheduler.facts()

    assert facts.slurm_version == Known(value="25.11.7")
    assert (facts.cluster_name, facts.min_job_age) == (Known(value="alpha"), Known(value=timedelta(seconds=300)))
    assert facts.requeue_delay == Known(value=timedelta(seconds=11))
    assert facts.scheduler_parameters == Known(value=("requeue_delay=10", "bf_continue"))
    assert facts.accounting_store_flags == Known(value=frozenset({"job_comment", "job_script"}))
    assert facts.has_accounting is Answer.YES
    assert isinstance(facts.controllers, Known)
    assert [(each.host, each.role, each.answers) for each in facts.controllers.value] == [
        ("ctl1", "primary", Answer.YES),
        ("ctl2", "backup", Answer.NO),
    ]
    assert isinstance(facts.clock_skew, Unknown)


@pytest.mark.parametrize(("account", "answer"), [("root", Answer.YES), ("slurm", Answer.YES), ("ada", Answer.UNKNOWN)])
async def test_what_can_be_done_depends_on_the_account(site: Site, account: str, answer: Answer) -> None:
    can = await site.as_account(account).capabilities()

    acts = (can.requeue, can.hold, can.exclude, can.admin_comment, can.batch_script)
    assert {each.answer for each in acts} == {answer}
    assert can.accounting.answer is Answer.NO
    assert isinstance(site.scheduler, SiteReader)


async def test_without_slurmdbd_a_plain_account_may_not_act_and_the_reason_says_who_may(site: Site) -> None:
    site.become(CLUSTER | {"config": CLUSTER["config"] | {"accounting_storage_type": None}})
    can = await site.as_account("ada").capabilities()

    assert can.requeue.answer is Answer.NO
    assert "only root and slurm may act" in can.requeue.reason


async def test_where_pyslurm_is_missing_nothing_is_known_of_what_can_be_done(site: Site) -> None:
    site.break_library("No module named 'pyslurm'")
    can = await site.scheduler.capabilities()

    assert can.exclude.answer is Answer.UNKNOWN
    assert "cannot import pyslurm" in can.exclude.reason


async def test_a_batch_script_is_read_and_a_refusal_is_one(site: Site) -> None:
    assert await site.scheduler.batch_script("7") == "#!/bin/sh\ntrue\n"
    site.become(CLUSTER | {"script": {"refusal": "Access/permission denied", "number": 2002}})
    with pytest.raises(NotPermitted, match="batch script of job 7"):
        await site.scheduler.batch_script("7")
