"""The attribution activity: from logs on disk and what the scheduler says of the nodes to a verdict."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.assess import Assessor
from activities.assessment import AttributeOrder, Attribution, Background, Terms
from activities.attempt_lines import MAX_LOG_BYTES
from activities.logs.files import FileTail
from activities.logs.protocol import LogCursor
from activities.scheduler.protocol import JobRecord, JobState, NodeRecord, SchedulerUnavailable
from activities.scheduler.site import Reservation
from recovery.model import Action, Category, Confidence, JobKey, Mode, Progress, SymptomKind
from recovery.optin import OptIn
from recovery.policy import PolicySettings
from recovery.suspects import Suspicion
from tests.watch.scripted import XID, ScriptedScheduler, iteration, saved, submitted_at

NODES = ("node01", "node02", "node03")
XID_ON_NODE02 = f"node02: {XID}"
CANCELLED = (
    "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-03-01T08:10:00 DUE TO NODE FAILURE, "
    "SEE SLURMCTLD LOG FOR DETAILS ***"
)


def node(name: str, *states: str, partitions: tuple[str, ...] = ("gpu",)) -> NodeRecord:
    return NodeRecord(name=name, states=frozenset(states), partitions=frozenset(partitions))


class ScriptedSuspicions:
    """What other jobs say against nodes."""

    def __init__(self) -> None:
        self.told: tuple[Suspicion, ...] = ()

    async def suspicions(self) -> tuple[Suspicion, ...]:
        return self.told


class ScriptedReservations:
    """Tells of these reservations, and counts who asks."""

    def __init__(self, told: tuple[Reservation, ...], trouble: SchedulerUnavailable | None = None) -> None:
        self._told, self._trouble = told, trouble
        self.asked = 0

    async def reservations(self) -> tuple[Reservation, ...]:
        self.asked += 1
        if self._trouble is not None:
            raise self._trouble
        return self._told


def reservation(*nodes: str) -> Reservation:
    return Reservation(name="training", starts_at=submitted_at(0), ends_at=submitted_at(100), nodes=nodes)


class Assessment:
    """An assessor over one job's files, and the order that a test makes for it."""

    def __init__(self, directory: Path) -> None:
        self.scheduler = ScriptedScheduler()
        self.scheduler.node_records = tuple(node(name, "ALLOCATED") for name in NODES)
        self.logs = FileTail()
        self.suspicions = ScriptedSuspicions()
        self.out, self.err = directory / "job.out", directory / "job.err"
        self.assessor = self._assessor(None)

    def _assessor(self, site: ScriptedReservations | None) -> Assessor:
        return Assessor(
            self.scheduler,  # type: ignore[arg-type]
            self.logs,
            PolicySettings(),
            Terms(mode=Mode.ACT, acknowledged=True, advice_lifetime_s=77),
            suspicions=self.suspicions,
            reservations=site,
        )

    def with_reservations(self, site: ScriptedReservations) -> Assessment:
        self.assessor = self._assessor(site)
        return self

    def record(self, state: JobState = JobState.FAILED, attempt: int = 0, **facts: Any) -> JobRecord:
        files = {"stdout": str(self.out), "stderr": str(self.err)}
        return JobRecord(
            **{
                "job_id": "4711",
                "partition": "gpu",
                "state": state,
                "restart_count": attempt,
                "submitted_at": submitted_at(attempt),
                "nodes": NODES,
                "node_count": len(NODES),
                **files,
                **facts,
            }
        )

    def order(self, record: JobRecord | None = None, **facts: Any) -> AttributeOrder:
        return AttributeOrder(
            **{
                "job": JobKey(cluster="c1", job_id="4711", submitted_at=submitted_at(0)),
                "attempt": 0,
                "record": record or self.record(exit_code=1),
                "symptom": SymptomKind.CRASH,
                "nodes": NODES,
                "background": Background(optin=OptIn()),
                **facts,
            }
        )

    def requeued(self, **facts: Any) -> AttributeOrder:
        """The order after a requeue by others, the job being back in the queue."""
        record = self.record(JobState.PENDING, 1, nodes=(), reason="BeginTime")
        return self.order(**{"record": record, "requeued": True, "symptom": SymptomKind.NONE, **facts})

    async def attribute(self, order: AttributeOrder) -> Attribution:
        # As the worker sends and gets it.
        sent = AttributeOrder.model_validate_json(order.model_dump_json())
        answer = await ActivityEnvironment().run(self.assessor.attribute, sent)
        return Attribution.model_validate_json(answer.model_dump_json())

    async def read_out(self) -> tuple[LogCursor, ...]:
        """Where the output of an attempt ends that has just ended."""
        return tuple([(await self.logs.read(LogCursor(source=str(path)))).cursor for path in (self.out, self.err)])

    async def began_now(self) -> tuple[LogCursor, ...]:
        """Where an attempt begins that starts now, its output appended."""
        return (await self.logs.end(str(self.out)), await self.logs.end(str(self.err)))


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[Assessment]:
    assessment = Assessment(tmp_path)
    assessment.out.write_text("")
    assessment.err.write_text("")
    yield assessment
    await assessment.logs.close()


async def test_the_culprit_is_named_with_the_line_that_shows_it(job: Assessment) -> None:
    job.out.write_text("".join(f"{iteration(n)}\n" for n in range(1, 10)))
    job.err.write_text(f"warning\n{XID_ON_NODE02}\n")
    answer = await job.attribute(job.order())
    verdict = answer.verdict
    assert (verdict.symptom, verdict.category) == (SymptomKind.CRASH, Category.HARDWARE_GPU)
    assert (verdict.culprits, verdict.victims) == (("node02",), ("node01", "node03"))
    assert [(evidence.source, evidence.line) for evidence in verdict.evidence] == [(str(job.err), 2)]
    assert (answer.ending.state, answer.ending.exit_code, answer.ending.node_count) == ("FAILED", 1, 3)


async def test_the_tasks_that_a_job_asks_for_on_each_node_place_a_task(job: Assessment) -> None:
    job.err.write_text("1: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    for tasks_per_node, culprits in ((0, ()), (1, ("node02",)), (8, ("node01",))):
        answer = await job.attribute(job.order(job.record(exit_code=1, tasks_per_node=tasks_per_node)))
        assert answer.verdict.culprits == culprits


async def test_where_nobody_else_has_to_be_heard_the_decision_comes_in_the_same_breath(job: Assessment) -> None:
    job.scheduler.node_records = tuple(node(f"node{number:02}", "IDLE") for number in range(1, 6))
    job.err.write_text(f"{XID_ON_NODE02}\n")
    assert (await job.attribute(job.order())).decided is None

    answer = await job.attribute(job.order(decide_too=True))

    assert answer.decided is not None
    decision = answer.decided.decision
    assert (decision.action, decision.exclude) == (Action.RESTART_EXCLUDE, ("node02",))
    assert answer.decided.decided_at >= answer.attributed_at


async def test_a_verdict_is_not_lost_where_a_rule_fails(job: Assessment, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("activities.assess.decide", broken)
    job.err.write_text(f"{XID_ON_NODE02}\n")
    answer = await job.attribute(job.order(decide_too=True))
    assert (answer.verdict.culprits, answer.decided) == (("node02",), None)


async def test_the_usable_nodes_are_those_of_the_jobs_partition_that_are_well(job: Assessment) -> None:
    job.scheduler.node_records = (
        node("node01", "IDLE"),
        node("node02", "ALLOCATED", "DRAIN"),
        node("node03", "DOWN"),
        node("node04", "MIXED", "NOT_RESPONDING"),
        node("node05", "ALLOCATED", partitions=("gpu", "debug")),
        node("node06", "IDLE", partitions=("debug",)),
        node("node07", "IDLE", partitions=()),
    )
    assert (await job.attribute(job.order())).usable_nodes == {"node01", "node05", "node07"}


async def test_the_reservations_are_asked_for_only_for_a_job_that_has_one(job: Assessment) -> None:
    site = ScriptedReservations((reservation("node01", "node02"),))
    assert (await job.with_reservations(site).attribute(job.order())).usable_nodes == set(NODES)
    assert not site.asked

    asked = await job.attribute(job.order(job.record(reservation="training")))
    assert (asked.usable_nodes, site.asked) == ({"node01", "node02"}, 1)


@pytest.mark.parametrize("site", [None, SchedulerUnavailable("no answer")], ids=["no such reader", "no answer"])
async def test_a_reservation_of_which_nothing_is_known_says_nothing(
    job: Assessment, site: SchedulerUnavailable | None
) -> None:
    if site is not None:
        job.with_reservations(ScriptedReservations((), trouble=site))
    assert (await job.attribute(job.order(job.record(reservation="training")))).usable_nodes is None


async def test_a_verdict_comes_though_the_scheduler_is_silent(job: Assessment) -> None:
    job.scheduler.silent = True
    job.err.write_text(f"{XID_ON_NODE02}\n")
    answer = await job.attribute(job.order())
    assert answer.usable_nodes is None
    assert answer.verdict.culprits == ("node02",)


async def test_a_verdict_does_not_wait_for_a_scheduler_that_hangs(
    job: Assessment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.assess.NODE_READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(job.scheduler, "nodes", lambda: asyncio.sleep(60))
    began = time.monotonic()
    assert (await job.attribute(job.order())).usable_nodes is None
    assert time.monotonic() - began < 5


async def test_a_node_that_slurm_took_out_is_the_culprit_of_a_node_failure(job: Assessment) -> None:
    job.scheduler.node_records = (node("node01", "ALLOCATED"), node("node03", "DOWN", "NOT_RESPONDING"))
    verdict = (await job.attribute(job.order(job.record(JobState.NODE_FAIL)))).verdict
    assert (verdict.cause, verdict.culprits) == ("node_failure", ("node03",))
    assert (verdict.suggested, verdict.confidence) == (Action.RESTART_EXCLUDE, Confidence.ESTABLISHED)


async def test_a_dead_node_of_another_job_is_nobodys_culprit(job: Assessment) -> None:
    job.scheduler.node_records = (*job.scheduler.node_records, node("node77", "DOWN"))
    verdict = (await job.attribute(job.order(job.record(JobState.NODE_FAIL)))).verdict
    assert (verdict.cause, verdict.culprits) == ("node_failure", ())
    assert verdict.unlocated_because


@pytest.mark.parametrize("words", [CANCELLED, ""], ids=["the log says so", "the log says nothing"])
async def test_after_slurms_own_requeue_the_failed_node_is_named(words: str, job: Assessment) -> None:
    job.out.write_text(f"{iteration(1)}\n{words}\n")
    job.scheduler.node_records = (node("node01", "IDLE"), node("node02", "DOWN", "NOT_RESPONDING"))
    answer = await job.attribute(job.requeued(began=(LogCursor(source=str(job.out)),)))
    assert (answer.ending.state, answer.ending.requeued) == ("REQUEUED", True)
    assert (answer.verdict.cause, answer.verdict.culprits) == ("node_failure", ("node02",))
    assert answer.verdict.suggested is Action.RESTART_EXCLUDE


async def test_the_node_where_a_step_was_cancelled_is_not_the_one_that_failed(job: Assessment) -> None:
    job.out.write_text(f"{iteration(1)}\n{CANCELLED}\n")
    verdict = (await job.attribute(job.requeued())).verdict
    assert (verdict.cause, verdict.culprits) == ("node_failure", ())


async def test_a_requeue_that_somebody_wanted_is_no_failure(job: Assessment) -> None:
    job.scheduler.node_records = (*job.scheduler.node_records, node("node77", "DOWN"))
    job.out.write_text("".join(f"{iteration(n)}\n" for n in range(1, 10)))
    verdict = (await job.attribute(job.requeued())).verdict
    assert (verdict.symptom, verdict.suggested) == (SymptomKind.NONE, Action.NONE)


async def test_how_processes_die_of_a_requeue_that_somebody_wanted_is_no_failure_either(job: Assessment) -> None:
    last_words = [
        "node01:4711:4755 [0] NCCL WARN socketProgress: Connection closed by remote peer node03<40513>",
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: ncclRemoteError: A call failed possibly due to a "
        "network error or a remote process exiting prematurely.",
        "slurmstepd-node01: error: *** JOB 4711 ON node01 CANCELLED AT 2026-03-01T08:00:09 DUE TO JOB REQUEUE ***",
    ]
    job.out.write_text("".join(f"{line}\n" for line in [*[iteration(n) for n in range(1, 10)], *last_words]))
    verdict = (await job.attribute(job.requeued())).verdict
    assert (verdict.cause, verdict.suggested) == ("job_requeued", Action.NONE)
    assert verdict.culprits == ()


async def test_only_the_attempts_own_lines_count(job: Assessment) -> None:
    job.err.write_text(f"{XID_ON_NODE02}\n")
    began = await job.began_now()
    job.out.write_text(f"{iteration(1)}\n")
    verdict = (await job.attribute(job.order(job.record(attempt=1, exit_code=1), attempt=1, began=began))).verdict
    assert verdict.culprits == ()
    assert verdict.category is not Category.HARDWARE_GPU


async def test_an_output_written_anew_is_read_from_its_first_line(job: Assessment) -> None:
    job.err.write_text("the attempt before said much more than this one did\n" * 20)
    began = await job.began_now()
    job.err.write_text(f"{XID_ON_NODE02}\n")
    verdict = (await job.attribute(job.order(job.record(attempt=1, exit_code=1), attempt=1, began=began))).verdict
    assert verdict.culprits == ("node02",)


async def test_what_the_next_attempt_wrote_is_not_held_against_this_one(job: Assessment) -> None:
    job.err.write_text("the attempt in question\n" * 20)
    began = await job.began_now()
    job.err.write_text(f"{XID_ON_NODE02}\n")
    order = job.requeued(record=job.record(JobState.RUNNING, 2), attempt=1, began=began)
    assert (await job.attribute(order)).verdict.culprits == ()


@pytest.mark.parametrize("mode", ["a", "w"], ids=["appended", "written anew"])
@pytest.mark.parametrize("watched", [True, False], ids=["watched from its start", "not watched"])
async def test_what_the_next_attempt_writes_before_this_one_is_looked_into_is_left_out(
    mode: str, watched: bool, job: Assessment
) -> None:
    began = (LogCursor(source=str(job.out)), LogCursor(source=str(job.err))) if watched else ()
    job.out.write_text(f"{iteration(1)}\n")
    job.err.write_text("RuntimeError: CUDA error: an illegal memory access was encountered\nits last words")
    ended = await job.read_out()
    with job.err.open(mode) as next_attempts:
        next_attempts.write(f"\n{XID_ON_NODE02}\n{XID_ON_NODE02}\n")
    # The record is as it was when the attempt ended: nobody knew of the next one then.
    verdict = (await job.attribute(job.order(began=began, ended=ended))).verdict
    assert verdict.culprits == ()
    assert [evidence.text for evidence in verdict.evidence if "NVRM" in evidence.text] == []
    assert any("illegal memory access" in evidence.text for evidence in verdict.evidence) is (mode == "a")


async def test_an_output_that_its_own_attempt_wrote_anew_is_read_to_its_end(job: Assessment) -> None:
    job.err.write_text("the attempt before said much more than this one did\n" * 20)
    began = await job.began_now()
    job.err.write_text(f"{XID_ON_NODE02}\n")
    record = job.record(attempt=1, exit_code=1)
    verdict = (await job.attribute(job.order(record, attempt=1, began=began, ended=await job.read_out()))).verdict
    assert verdict.culprits == ("node02",)


async def test_an_attempt_that_nobody_watched_is_read_where_its_output_is_known(job: Assessment) -> None:
    job.err.write_text(f"{XID_ON_NODE02}\n")
    assert (await job.attribute(job.order())).verdict.culprits == ("node02",)
    assert (await job.attribute(job.requeued())).verdict.culprits == ("node02",)
    later = job.order(job.record(attempt=3, exit_code=1), attempt=3)
    assert (await job.attribute(later)).verdict.culprits == ()


@pytest.mark.parametrize("silent_for", [timedelta(seconds=9), timedelta(hours=2)])
async def test_a_time_limit_is_told_from_a_hang_by_the_watchs_own_clock(silent_for: timedelta, job: Assessment) -> None:
    """The lines' stamps are of the cluster's zone, which is not known, and here of some day long ago."""
    ended_at = datetime.now(UTC) - timedelta(seconds=3)
    job.out.write_text("".join(f"{iteration(n)}\n" for n in range(1, 10)))
    record = job.record(JobState.TIMEOUT, ended_at=ended_at)
    progress = Progress(iteration=9, last_at=ended_at - silent_for)
    verdict = (await job.attribute(job.order(record, progress=progress))).verdict
    expected = ("time_limit", SymptomKind.CRASH) if silent_for < timedelta(hours=1) else ("stall", SymptomKind.HANG)
    assert (verdict.cause, verdict.symptom) == expected


@pytest.mark.parametrize("loss", ["removed", "directory", "emptied", "binary"])
async def test_a_log_that_is_lost_leaves_a_failure_of_unknown_cause(loss: str, job: Assessment) -> None:
    job.out.write_text(f"{iteration(1)}\n{XID_ON_NODE02}\n")
    began = await job.began_now()
    for path in (job.out, job.err):
        path.unlink()
        if loss == "directory":
            path.mkdir()
        elif loss == "emptied":
            path.write_text("")
        elif loss == "binary":
            path.write_bytes(os.urandom(100_000))
    verdict = (await job.attribute(job.order(began=began))).verdict
    assert (verdict.symptom, verdict.confidence) == (SymptomKind.CRASH, Confidence.GUESS)
    assert (verdict.culprits, verdict.suggested) == ((), Action.RESTART)


async def test_a_silent_hang_is_a_failure_of_unknown_cause(job: Assessment) -> None:
    job.out.write_text("".join(f"{iteration(n)}\n" for n in range(1, 10)))
    order = job.order(job.record(JobState.RUNNING), symptom=SymptomKind.HANG)
    verdict = (await job.attribute(order)).verdict
    assert (verdict.symptom, verdict.category) == (SymptomKind.HANG, Category.UNKNOWN)
    assert verdict.suggested is Action.RESTART


async def test_of_a_huge_log_head_and_tail_are_read_and_the_loop_goes_on(job: Assessment) -> None:
    with job.out.open("w") as file:
        file.writelines("printing every sample of the data set, with all of its tokens\n" for _ in range(300_000))
        file.write(f"{saved(5)}\n{XID_ON_NODE02}\n")
    assert job.out.stat().st_size > 4 * MAX_LOG_BYTES
    longest_s = 0.0

    async def beat() -> None:
        nonlocal longest_s
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            longest_s = max(longest_s, time.monotonic() - began)

    beats = asyncio.create_task(beat())
    began = time.monotonic()
    verdict = (await job.attribute(job.order())).verdict
    took_s = time.monotonic() - began
    await asyncio.sleep(0.05)
    beats.cancel()
    assert verdict.culprits == ("node02",)
    assert verdict.evidence[-1].line == 300_002
    assert took_s < 15, "the activity's deadline"
    assert longest_s < took_s / 2, "other jobs' heartbeats"


async def test_secrets_in_evidence_are_masked(job: Assessment) -> None:
    key = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz"
    job.err.write_text(
        "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n'
        f"    login(token='{key}', password='correct-horse')\n"
        f"ValueError: HF_TOKEN={key} is refused by https://ana:s3cr3tpw@hub.example/api\n"
    )
    answer = await job.attribute(job.order())
    assert answer.verdict.evidence
    shown = answer.model_dump_json()
    assert [secret for secret in (key, "correct-horse", "s3cr3tpw") if secret in shown] == []


async def test_hostile_lines_are_text_and_nothing_else(job: Assessment) -> None:
    job.err.write_bytes(
        b"\x1b]0;title\x07<script>alert(1)</script> NVRM: Xid (PCI:0000:3b:00): 79, $(reboot) `id`\n"
        + b"(" * 100_000
        + b"\n\xff\xfe\x00\n"
        + f"evil;rm -rf: {XID}\n".encode()
    )
    verdict = (await job.attribute(job.order())).verdict
    assert set(verdict.culprits) <= set(NODES)
    assert all(evidence.text.isprintable() for evidence in verdict.evidence)


async def test_of_what_jobs_say_against_nodes_only_others_words_on_its_own_nodes_count(job: Assessment) -> None:
    job.scheduler.node_records = tuple(node(f"node{number:02}", "IDLE") for number in range(1, 6))
    now = datetime.now(UTC)
    told = {("node02", "c1/1"), ("node02", "c1/2"), ("node02", "c1/4711"), ("node09", "c1/1")}
    job.suspicions.told = tuple(Suspicion(node=node, job=by, weight=1, at=now) for node, by in sorted(told))

    answer = await job.attribute(job.order(decide_too=True))

    assert {(each.node, each.job) for each in answer.suspicions} == {("node02", "c1/1"), ("node02", "c1/2")}
    assert answer.decided is not None
    assert (answer.decided.decision.rule, answer.decided.decision.exclude) == ("suspect_node", ("node02",))
    task = job.order(record=job.record(exit_code=1, array_job_id="1"))
    assert {each.job for each in (await job.attribute(task)).suspicions} == {"c1/2", "c1/4711"}
