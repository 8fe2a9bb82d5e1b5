"""The activity that looks for jobs in every reading of the cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities import discovery
from activities.adopt import Adopter
from activities.discovery import Discovered, DiscoverOrder, Discovery
from activities.scheduler.protocol import JobRecord, JobState
from activities.snapshot import ClusterSnapshots
from recovery.model import Mode
from tests.adopt.guarding import OPTED_IN, Guarding, seconds_ago
from tests.adopt.test_wanted import MALFORMED
from tests.watch.scripted import ScriptedScheduler

pytestmark = pytest.mark.temporal


class Looking:
    """A discovery under way on a scripted cluster."""

    def __init__(self, guarding: Guarding, scheduler: ScriptedScheduler, snapshots: ClusterSnapshots) -> None:
        self.scheduler = scheduler
        self.snapshots = snapshots
        self.guarding = guarding
        self.heartbeats: list[Any] = []
        self.environment = ActivityEnvironment()
        self.environment.on_heartbeat = self.heartbeats.append
        self.task: asyncio.Task[Discovered] | None = None

    def lists(self, *records: JobRecord) -> None:
        self.scheduler.listed.update({record.job_id: record for record in records})

    def start(self, lease_s: float = 30) -> asyncio.Task[Discovered]:
        selection = self.guarding.selection
        discovery = Discovery(
            self.snapshots, Adopter(self.guarding.client, self.guarding.cluster, selection), selection
        )
        order = DiscoverOrder(cluster=self.guarding.cluster, lease_s=lease_s)
        self.task = asyncio.create_task(self.environment.run(discovery.discover_jobs, order))
        return self.task


@pytest.fixture
async def looking(guarding: Guarding, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Looking]:
    monkeypatch.setattr(discovery, "HEARTBEAT_S", 0.2)
    scheduler = ScriptedScheduler()
    snapshots = ClusterSnapshots(guarding.cluster, scheduler, 0.05)  # type: ignore[arg-type]
    poller = asyncio.create_task(snapshots.run())
    looking = Looking(guarding, scheduler, snapshots)
    yield looking
    poller.cancel()
    if looking.task is not None:
        looking.environment.cancel()
        await asyncio.wait({looking.task})


async def test_every_opted_in_job_is_taken_under_guard_as_it_appears(looking: Looking, guarding: Guarding) -> None:
    looking.lists(guarding.record("1"), guarding.record("2", comment=""), guarding.record("3", JobState.CANCELLED))
    lease = looking.start(lease_s=2.5)
    await guarding.until_guarded("1")
    looking.lists(guarding.record("4", JobState.PENDING))
    await guarding.until_guarded("4")
    discovered = await lease
    assert (discovered.adopted, discovered.listed) == (2, 4)
    assert await guarding.described("2") is None
    assert await guarding.described("3") is None


async def test_a_job_that_is_under_guard_already_is_not_counted_again(looking: Looking, guarding: Guarding) -> None:
    await guarding.adopt(guarding.record("1"))
    looking.lists(guarding.record("1"), guarding.record("2"))
    lease = looking.start(lease_s=1.5)
    await guarding.until_guarded("2")
    assert (await lease).adopted == 1


async def test_the_next_worker_counts_on_from_what_the_last_one_had_taken(looking: Looking, guarding: Guarding) -> None:
    looking.environment.info = dataclasses.replace(looking.environment.info, heartbeat_details=[3])
    looking.lists(guarding.record("1"))
    lease = looking.start(lease_s=1.5)
    await guarding.until_guarded("1")
    assert (await lease).adopted == 4


async def test_a_job_that_opts_in_later_is_found_then(looking: Looking, guarding: Guarding) -> None:
    record = guarding.record("1", comment="")
    looking.lists(record)
    looking.start()
    await looking.snapshots.newer_than((await looking.snapshots.newer_than(None)).read_at)
    await asyncio.sleep(0.2)
    assert await guarding.described("1") is None
    looking.lists(record.model_copy(update={"comment": OPTED_IN}))
    await guarding.until_guarded("1")


async def test_a_job_that_is_requeued_after_its_workflow_closed_is_found_again(
    looking: Looking, guarding: Guarding
) -> None:
    record = guarding.record("1")
    looking.lists(record)
    looking.start()
    await guarding.until_guarded("1")
    await guarding.close("1", record.submitted_at)
    await asyncio.sleep(0.3)
    assert not await guarding.is_guarded("1")
    looking.lists(record.model_copy(update={"restart_count": 1, "submitted_at": seconds_ago(0)}))
    await guarding.until_guarded("1")


async def test_a_reused_job_id_is_taken_up_once_the_earlier_workflow_is_gone(
    looking: Looking, guarding: Guarding
) -> None:
    old = guarding.record("1", submitted_at=seconds_ago(86_400))
    await guarding.adopt(old)
    first = await guarding.run_id("1")
    looking.lists(guarding.record("1", name="another"))
    looking.start()
    await asyncio.sleep(0.4)
    assert await guarding.run_id("1") == first
    await guarding.close("1", old.submitted_at)
    await guarding.until_guarded("1")
    assert (await guarding.start_of("1")).record.name == "another"


async def test_comments_that_cannot_be_read_are_observed_with_one_warning_each(
    looking: Looking, guarding: Guarding
) -> None:
    job_ids = [str(number) for number in range(1, len(MALFORMED) + 1)]
    looking.lists(*(guarding.record(job_id, comment=text) for job_id, text in zip(job_ids, MALFORMED, strict=True)))
    looking.start()
    await guarding.until_guarded(*job_ids)
    for job_id in job_ids:
        optin = (await guarding.start_of(job_id)).optin
        assert optin.mode is Mode.OBSERVE
        assert "comment can't be used" in optin.warning


async def test_while_the_scheduler_is_silent_looking_goes_on(looking: Looking, guarding: Guarding) -> None:
    looking.scheduler.silent = True
    looking.start()
    await asyncio.sleep(0.7)
    assert len(looking.heartbeats) >= 2
    looking.scheduler.silent = False
    looking.lists(guarding.record("1"))
    await guarding.until_guarded("1")


async def test_a_worker_that_shuts_down_hands_the_looking_over(looking: Looking) -> None:
    lease = looking.start()
    await asyncio.sleep(0.3)
    began = time.monotonic()
    looking.environment.worker_shutdown()
    with pytest.raises(ApplicationError) as handed_over:
        await lease
    assert time.monotonic() - began < 1
    assert handed_over.value.category is ApplicationErrorCategory.BENIGN
