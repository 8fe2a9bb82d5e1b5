"""What slurmctld's log says of calls, in the words of Slurm 22.05.8."""

from __future__ import annotations

from datetime import datetime

from activities.scheduler.protocol import Hold, JobState
from tests.chaos.records import Verb
from tests.chaos.slurmctld_log import Crash, calls_in

LOG = """\
[2026-11-29T15:52:51.700] sched: Allocate JobId=7 NodeList=node[01-02] #CPUs=2 Partition=main
[2026-11-29T15:52:54.976] _update_job: setting admin_comment to {"x":"Requeuing JobId=9"} for JobId=7
[2026-11-29T15:52:54.976] _slurm_rpc_update_job: complete JobId=7 uid=0 usec=317
[2026-11-29T15:52:55.021] Requeuing JobId=7
[2026-11-29T15:52:57.999] sched: _update_job: setting exc_nodes to node[02,08] for JobId=7
[2026-11-29T15:52:58.025] sched: _release_job_rec: release hold on JobId=7 by uid 0
[2026-11-29T15:52:58.043] sched: _update_job: setting begin to 2026-11-29T15:52:58 for JobId=7
[2026-11-29T15:53:01.054] sched: _hold_job_rec: hold on JobId=8 by uid 0
[2026-11-29T15:53:01.069] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=8 uid 0
[2026-11-29T15:53:02.000] requeue job JobId=7 due to failure of node node03
[2026-11-29T15:53:02.900] Requeuing JobId=7
"""


def at(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-29T{time}").astimezone()


def test_each_call_that_took_effect_is_read() -> None:
    calls = list(calls_in(LOG.splitlines(), lambda verb, job_id: job_id == "7"))

    assert [(call.job_id, call.verb) for call in calls] == [
        ("7", Verb.CONSTRAIN),
        ("7", Verb.REQUEUE),
        ("7", Verb.CONSTRAIN),
        ("7", Verb.RELEASE),
        ("7", Verb.START_NOW),
        ("8", Verb.HOLD),
        ("8", Verb.CANCEL),
        ("7", Verb.NODE_FAILURE),
    ]
    assert [call.restart_count for call in calls] == [0, 1, 1, 1, 1, 0, 0, 2]
    assert [call.exclude for call in calls if call.exclude is not None] == [("node02", "node08")]
    assert [call.ours for call in calls] == [True] * 5 + [False] * 2 + [True]
    assert calls[1].hold is Hold.REQUEUED
    assert calls[6].state is JobState.CANCELLED
    assert calls[0].at == at("15:52:54.976")


def test_what_slurm_requeues_by_itself_is_nobodys_call_also_when_a_crash_came_in_between() -> None:
    log = """\
[2026-11-29T15:52:51.100] _job_complete: requeue JobId=8 due to node failure
[2026-11-29T15:52:51.200] Requeuing JobId=8
[2026-11-29T15:52:58.000] slurmctld version 22.05.8 started on cluster relight-test
[2026-11-29T15:52:58.100] _sync_nodes_to_comp_job: JobId=8 in completing state
[2026-11-29T15:52:58.200] Requeuing JobId=8
[2026-11-29T15:53:20.000] Requeuing JobId=8
"""
    calls = list(calls_in(log.splitlines(), lambda verb, job_id: True))

    assert [call.verb for call in calls] == [Verb.NODE_FAILURE, Verb.NODE_FAILURE, Verb.REQUEUE]


def test_a_requeue_that_the_controller_forgot_when_it_crashed_never_happened() -> None:
    log = """\
[2026-11-29T15:52:51.000] Requeuing JobId=7
[2026-11-29T15:52:58.000] Requeuing JobId=7
[2026-11-29T15:52:58.500] Requeuing JobId=8
[2026-11-29T15:53:05.000] Requeuing JobId=7
[2026-11-29T15:53:20.000] Requeuing JobId=7
"""
    crash = Crash(killed_at=at("15:53:00"), read_at=at("15:53:10"), restarts={"7": 2, "8": 1})
    calls = list(calls_in(log.splitlines(), lambda verb, job_id: True, [crash]))

    assert [call.forgotten for call in calls] == [False, True, False, False, False]
    assert [call.restart_count for call in calls if call.job_id == "7"] == [1, 1, 2, 3]
