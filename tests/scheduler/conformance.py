"""What every scheduler transport must do, told once and run for each of them.

A transport joins by subclassing `SchedulerConformance` in a test module and giving it a fixture named ``cluster`` that
returns its `ClusterUnderTest`. The suite leaves no job running behind it and assumes nothing about other jobs on the
cluster, only that enough nodes are free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum

import pytest

from activities.scheduler.protocol import (
    Hold,
    JobFlag,
    JobRecord,
    JobState,
    JobUnknown,
    Refused,
    Scheduler,
)

UNKNOWN_JOB_ID = "99999999"
START_TIMEOUT_S = 60.0
AWKWARD_TEXT = """{"relight": {"said": "it's \\"so\\"", "path": "a\\\\b=c d", "ünï": "码 🔥"}}"""


class Behaviour(StrEnum):
    """What the submitted job does once it runs."""

    RUNS = "runs"
    """Runs until somebody ends it."""
    COMPLETES = "completes"
    """Ends at once with exit code 0."""
    FAILS = "fails"
    """Ends at once with exit code 3."""


FAILURE_EXIT_CODE = 3


class ClusterUnderTest(ABC):
    """A cluster that jobs can be submitted to, with the scheduler transport that is to be tested."""

    @property
    @abstractmethod
    def scheduler(self) -> Scheduler:
        """The transport under test."""

    @abstractmethod
    async def submit(
        self,
        behaviour: Behaviour,
        *,
        nodes: int = 1,
        comment: str = "",
        exclude: tuple[str, ...] = (),
        requeueable: bool = True,
        held: bool = False,
    ) -> str:
        """Submit one job and return its id. ``held``: submitted with a user's hold."""

    @abstractmethod
    async def submit_array(self, behaviour: Behaviour, *, tasks: int) -> str:
        """Submit an array with the tasks 1 to `tasks`, one node each, and return the array's id."""

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Let `seconds` of the cluster's time pass: a real cluster sleeps, a simulated one moves its clock."""

    async def until(
        self, job_id: str, holds: Callable[[JobRecord], bool], *, timeout_s: float = START_TIMEOUT_S
    ) -> JobRecord:
        """Read `job_id` freshly until `holds` is true of it and return that record; fail the test after `timeout_s`
        seconds of the cluster's time. A task of an array that is not taken apart yet is not known so far."""
        step_s = 0.25
        record: JobRecord | None = None
        for _ in range(int(timeout_s / step_s)):
            with suppress(JobUnknown):
                record = await self.scheduler.job(job_id)
                if holds(record):
                    return record
            await self.pass_time(step_s)
        pytest.fail(f"job {job_id} did not get there within {timeout_s:.0f} s; it is {record!r}")

    async def until_running(self, job_id: str) -> JobRecord:
        """Wait for the job to run."""
        return await self.until(job_id, lambda job: job.state is JobState.RUNNING)

    async def until_ended(self, job_id: str) -> JobRecord:
        """Wait for the job's attempt to have ended, its nodes cleaned up."""
        return await self.until(job_id, lambda job: job.state.ended and JobFlag.COMPLETING not in job.flags)

    async def until_held(self, job_id: str) -> JobRecord:
        """Wait for the job to be pending in the hold that a requeue leaves."""
        return await self.until(
            job_id,
            lambda job: (
                job.state is JobState.PENDING and job.hold is Hold.REQUEUED and JobFlag.COMPLETING not in job.flags
            ),
        )


class SchedulerConformance:
    """The suite. Subclasses provide the fixture ``cluster``."""

    async def test_a_bulk_read_and_a_fresh_read_tell_the_same_of_a_running_job(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS, nodes=2, comment="watch me")
        fresh = await cluster.until_running(job_id)
        bulk = await listed(cluster, job_id)

        assert bulk == fresh
        assert fresh.comment == "watch me"
        assert fresh.node_count == 2
        assert len(fresh.nodes) == 2
        assert fresh.batch_host == fresh.nodes[0]
        assert fresh.started_at is not None
        assert fresh.restart_count == 0
        assert fresh.requeueable
        assert fresh.stdout.startswith("/")
        await cluster.scheduler.cancel(job_id)

    async def test_nodes_of_a_running_job_are_nodes_of_the_cluster(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS)
        job = await cluster.until_running(job_id)

        by_name = {node.name: node for node in await cluster.scheduler.nodes()}

        assert set(job.nodes) <= set(by_name)
        assert by_name[job.nodes[0]].usable
        await cluster.scheduler.cancel(job_id)

    async def test_requeue_hold_puts_a_running_job_back_held_with_one_restart_more(
        self, cluster: ClusterUnderTest
    ) -> None:
        job_id = await cluster.submit(Behaviour.RUNS, nodes=2)
        await cluster.until_running(job_id)

        await cluster.scheduler.requeue_hold(job_id)
        job = await cluster.until_held(job_id)

        assert job.restart_count == 1
        assert job.nodes == ()
        assert job.node_count == 2
        await cluster.scheduler.cancel(job_id)

    async def test_the_exclusions_of_a_running_job_cannot_be_changed(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS)
        running = await cluster.until_running(job_id)
        other = await another_node(cluster, running)

        with pytest.raises(Refused, match=job_id):
            await cluster.scheduler.constrain(job_id, exclude=(other,), admin_comment=None)

        assert (await cluster.scheduler.job(job_id)).excluded_nodes == ()
        await cluster.scheduler.cancel(job_id)

    async def test_a_released_job_starts_without_the_nodes_it_was_kept_off(self, cluster: ClusterUnderTest) -> None:
        users_own = (await cluster.scheduler.nodes())[-1].name
        job_id = await cluster.submit(Behaviour.RUNS, nodes=2, exclude=(users_own,))
        first = await cluster.until_running(job_id)
        culprit = first.nodes[0]

        await cluster.scheduler.requeue_hold(job_id)
        held = await cluster.until_held(job_id)
        assert held.excluded_nodes == (users_own,)
        await cluster.scheduler.constrain(job_id, exclude=(users_own, culprit), admin_comment="kept off")
        await cluster.scheduler.release(job_id)
        await cluster.scheduler.start_now(job_id)
        second = await cluster.until_running(job_id)

        assert set(second.excluded_nodes) == {users_own, culprit}
        assert not set(second.nodes) & {users_own, culprit}
        assert second.hold is Hold.NONE
        assert second.restart_count == 1
        assert second.admin_comment == "kept off"
        await cluster.scheduler.cancel(job_id)

    async def test_start_now_clears_the_delay_before_a_requeued_job(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS)
        await cluster.until_running(job_id)
        await cluster.scheduler.requeue_hold(job_id)
        await cluster.until_held(job_id)

        await cluster.scheduler.release(job_id)
        delayed = await cluster.scheduler.job(job_id)
        await cluster.scheduler.start_now(job_id, admin_comment="let go")
        started = await cluster.until_running(job_id)

        assert delayed.state is JobState.PENDING
        assert delayed.eligible_at is not None
        assert started.started_at is not None
        assert started.started_at < delayed.eligible_at
        assert started.admin_comment == "let go"
        await cluster.scheduler.cancel(job_id)

    async def test_an_empty_exclusion_list_clears_it(self, cluster: ClusterUnderTest) -> None:
        node = (await cluster.scheduler.nodes())[0].name
        job_id = await cluster.submit(Behaviour.RUNS, exclude=(node,), held=True)
        assert (await cluster.scheduler.job(job_id)).excluded_nodes == (node,)

        await cluster.scheduler.constrain(job_id, exclude=(), admin_comment=None)

        assert (await cluster.scheduler.job(job_id)).excluded_nodes == ()
        await cluster.scheduler.cancel(job_id)

    async def test_a_users_hold_is_told_from_the_hold_of_a_requeue(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS, held=True)

        job = await cluster.scheduler.job(job_id)

        assert job.state is JobState.PENDING
        assert job.hold is Hold.USER
        await cluster.scheduler.cancel(job_id)

    async def test_a_job_that_the_scheduler_does_not_know_is_unknown_to_every_verb(
        self, cluster: ClusterUnderTest
    ) -> None:
        scheduler = cluster.scheduler
        for attempt in (
            scheduler.job(UNKNOWN_JOB_ID),
            scheduler.requeue_hold(UNKNOWN_JOB_ID),
            scheduler.requeue(UNKNOWN_JOB_ID),
            scheduler.constrain(UNKNOWN_JOB_ID, exclude=(), admin_comment=None),
            scheduler.release(UNKNOWN_JOB_ID),
            scheduler.start_now(UNKNOWN_JOB_ID),
            scheduler.allow_requeue(UNKNOWN_JOB_ID),
            scheduler.cancel(UNKNOWN_JOB_ID),
        ):
            with pytest.raises(JobUnknown, match=UNKNOWN_JOB_ID):
                await attempt

    async def test_a_job_that_ended_stays_listed_with_its_exit_code(self, cluster: ClusterUnderTest) -> None:
        completes = await cluster.submit(Behaviour.COMPLETES)
        fails = await cluster.submit(Behaviour.FAILS)
        await cluster.until_ended(completes)
        await cluster.until_ended(fails)

        completed, failed = await listed(cluster, completes), await listed(cluster, fails)

        assert (completed.state, completed.exit_code) == (JobState.COMPLETED, 0)
        assert (failed.state, failed.exit_code) == (JobState.FAILED, FAILURE_EXIT_CODE)
        assert failed.ended_at is not None

    async def test_a_failed_job_can_be_requeued(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.FAILS)
        await cluster.until_ended(job_id)

        await cluster.scheduler.requeue_hold(job_id)
        held = await cluster.until_held(job_id)
        assert held.restart_count == 1

        await cluster.scheduler.release(job_id)
        await cluster.scheduler.start_now(job_id)
        again = await cluster.until(job_id, lambda job: job.state.ended and JobFlag.COMPLETING not in job.flags)
        assert again.restart_count == 1
        assert again.state is JobState.FAILED

    async def test_an_ended_job_that_is_requeued_without_a_hold_takes_changes_long_before_it_starts(
        self, cluster: ClusterUnderTest
    ) -> None:
        job_id = await cluster.submit(Behaviour.FAILS)
        failed = await cluster.until_ended(job_id)
        culprit = failed.nodes[0]

        await cluster.scheduler.requeue(job_id)
        await cluster.scheduler.constrain(job_id, exclude=(culprit,), admin_comment="in time")
        waits = await cluster.scheduler.job(job_id)
        await cluster.scheduler.start_now(job_id)
        again = await cluster.until_ended(job_id)

        assert (waits.state, waits.hold, waits.flags) == (JobState.PENDING, Hold.NONE, frozenset())
        assert (waits.restart_count, waits.excluded_nodes, waits.admin_comment) == (1, (culprit,), "in time")
        assert waits.eligible_at is not None
        assert waits.eligible_at - waits.submitted_at >= timedelta(seconds=100)
        assert again.restart_count == 1
        assert again.started_at is not None
        assert again.started_at < waits.eligible_at
        assert culprit not in again.nodes

    async def test_a_running_job_that_is_requeued_without_a_hold_waits_for_its_turn(
        self, cluster: ClusterUnderTest
    ) -> None:
        job_id = await cluster.submit(Behaviour.RUNS)
        await cluster.until_running(job_id)

        await cluster.scheduler.requeue(job_id)
        waits = await cluster.until(
            job_id, lambda job: job.state is JobState.PENDING and JobFlag.COMPLETING not in job.flags
        )

        assert (waits.hold, waits.restart_count, waits.nodes) == (Hold.NONE, 1, ())
        await cluster.scheduler.cancel(job_id)

    async def test_a_pending_job_cannot_be_requeued(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS, held=True)

        for verb in (cluster.scheduler.requeue_hold, cluster.scheduler.requeue):
            with pytest.raises(Refused, match=job_id):
                await verb(job_id)

        assert (await cluster.scheduler.job(job_id)).hold is Hold.USER
        await cluster.scheduler.cancel(job_id)

    async def test_an_ended_job_takes_no_change_but_a_requeue(self, cluster: ClusterUnderTest) -> None:
        scheduler = cluster.scheduler
        job_id = await cluster.submit(Behaviour.FAILS)
        await cluster.until_ended(job_id)

        for change in (
            scheduler.constrain(job_id, admin_comment="too late"),
            scheduler.constrain(job_id, exclude=((await scheduler.nodes())[0].name,)),
            scheduler.start_now(job_id),
            scheduler.allow_requeue(job_id),
        ):
            with pytest.raises(Refused, match=job_id):
                await change

        await scheduler.requeue_hold(job_id)
        await cluster.until_held(job_id)
        await scheduler.constrain(job_id, admin_comment="in time")
        assert (await scheduler.job(job_id)).admin_comment == "in time"
        await scheduler.cancel(job_id)

    async def test_the_scheduler_requeues_even_a_cancelled_job_so_only_a_read_before_protects_it(
        self, cluster: ClusterUnderTest
    ) -> None:
        job_id = await cluster.submit(Behaviour.RUNS)
        await cluster.until_running(job_id)
        await cluster.scheduler.cancel(job_id)
        assert (await cluster.until_ended(job_id)).state is JobState.CANCELLED

        await cluster.scheduler.requeue_hold(job_id)

        assert (await cluster.until_held(job_id)).restart_count == 1
        await cluster.scheduler.cancel(job_id)

    async def test_cancelling_an_ended_job_is_no_error(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.COMPLETES)
        await cluster.until_ended(job_id)

        await cluster.scheduler.cancel(job_id)

        assert (await cluster.scheduler.job(job_id)).state is JobState.COMPLETED

    async def test_a_cancelled_job_ends_as_cancelled(self, cluster: ClusterUnderTest) -> None:
        running = await cluster.submit(Behaviour.RUNS)
        pending = await cluster.submit(Behaviour.RUNS, held=True)
        await cluster.until_running(running)

        await cluster.scheduler.cancel(running)
        await cluster.scheduler.cancel(pending)

        assert (await cluster.until_ended(running)).state is JobState.CANCELLED
        assert (await cluster.until_ended(pending)).state is JobState.CANCELLED

    async def test_comments_keep_every_character(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS, comment=AWKWARD_TEXT, held=True)

        await cluster.scheduler.constrain(job_id, exclude=None, admin_comment=AWKWARD_TEXT)

        job = await cluster.scheduler.job(job_id)
        assert job.comment == AWKWARD_TEXT
        assert job.admin_comment == AWKWARD_TEXT
        assert await listed(cluster, job_id) == job
        await cluster.scheduler.cancel(job_id)

    async def test_the_admin_comment_of_a_running_job_can_be_set_and_cleared(self, cluster: ClusterUnderTest) -> None:
        job_id = await cluster.submit(Behaviour.RUNS)
        await cluster.until_running(job_id)

        await cluster.scheduler.constrain(job_id, exclude=None, admin_comment="noted")
        assert (await cluster.scheduler.job(job_id)).admin_comment == "noted"
        await cluster.scheduler.constrain(job_id, exclude=None, admin_comment="")
        assert (await cluster.scheduler.job(job_id)).admin_comment == ""
        await cluster.scheduler.cancel(job_id)

    async def test_a_job_submitted_with_no_requeue_goes_back_only_once_it_is_allowed(
        self, cluster: ClusterUnderTest
    ) -> None:
        job_id = await cluster.submit(Behaviour.RUNS, requeueable=False)
        running = await cluster.until_running(job_id)
        assert not running.requeueable

        for verb in (cluster.scheduler.requeue_hold, cluster.scheduler.requeue):
            with pytest.raises(Refused, match=job_id):
                await verb(job_id)
        assert (await cluster.scheduler.job(job_id)).state is JobState.RUNNING

        await cluster.scheduler.allow_requeue(job_id)
        await cluster.scheduler.requeue_hold(job_id)
        held = await cluster.until_held(job_id)
        assert held.requeueable
        assert held.restart_count == 1
        await cluster.scheduler.cancel(job_id)

    async def test_a_verb_on_one_array_task_leaves_its_siblings_alone(self, cluster: ClusterUnderTest) -> None:
        array_id = await cluster.submit_array(Behaviour.RUNS, tasks=2)
        first, second = f"{array_id}_1", f"{array_id}_2"
        await cluster.until_running(first)
        await cluster.until_running(second)
        numbers = {(await listed(cluster, task)).job_number for task in (first, second)}

        await cluster.scheduler.requeue_hold(second)
        held = await cluster.until_held(second)
        sibling = await listed(cluster, first)

        assert len(numbers) == 2, "each task has a number of its own"
        assert held.job_number == array_id, "the last task has the array's own"

        assert held.job_id == second
        assert held.array_job_id == array_id
        assert held.restart_count == 1
        assert (sibling.state, sibling.restart_count) == (JobState.RUNNING, 0)
        await cluster.scheduler.cancel(first)
        await cluster.scheduler.cancel(second)


async def listed(cluster: ClusterUnderTest, job_id: str) -> JobRecord:
    """Return the record of `job_id` in a bulk read; fail the test when it is not listed exactly once."""
    reading = await cluster.scheduler.jobs()
    records = [job for job in reading.jobs if job.job_id == job_id]
    assert len(records) == 1, f"job {job_id} is listed {len(records)} times"
    return records[0]


async def another_node(cluster: ClusterUnderTest, job: JobRecord) -> str:
    """Return the name of a node that `job` does not run on."""
    return next(node.name for node in await cluster.scheduler.nodes() if node.name not in job.nodes)
