"""A real Temporal server, and job workflows that end when a test says so."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.adopt import CLOSED_PHASE, MAKE_WAY_SIGNAL, PHASE, Adopter, RecoveryStart, Selection
from activities.assessment import Terms
from activities.lineage import Handed
from recovery.model import Action, Category, Mode
from recovery.policy import PastAttempt
from tests.adopt.guarding import Guarding
from tests.workflows.servers import real_server
from workflows.state import RecoveryReport

PAST = PastAttempt(attempt=0, category=Category.STORAGE, action=Action.RESTART)
_clusters = itertools.count(1)


@workflow.defn(name="JobRecovery", sandboxed=False)
class JobRecoveryUntilTold:
    """Guards a job until it is told to end, as of an attempt that was submitted then."""

    def __init__(self) -> None:
        self._ended_with: datetime | None = None
        self._stays_with: datetime | None = None
        self._successor = ""

    @workflow.run
    async def run(self, start: RecoveryStart, state: Any = None) -> RecoveryReport:
        await workflow.wait_condition(lambda: self._ended_with is not None)
        assert self._ended_with is not None
        return RecoveryReport(
            job=start.job,
            closed="told",
            attempt=0,
            attempt_submitted_at=self._ended_with,
            resubmitted_as=self._successor,
            handed_on=Handed(past=(PAST,)) if self._successor else None,
        )

    @workflow.signal
    def end(self, attempt_submitted_at: datetime) -> None:
        self._ended_with = attempt_submitted_at

    @workflow.signal
    def close_but_stay(self, attempt_submitted_at: datetime) -> None:
        workflow.upsert_search_attributes([PHASE.value_set(CLOSED_PHASE)])
        self._stays_with = attempt_submitted_at

    @workflow.signal(name=MAKE_WAY_SIGNAL)
    def make_way(self) -> None:
        self._ended_with = self._stays_with

    @workflow.signal
    def resubmitted(self, successor: str) -> None:
        self._successor = successor


@pytest.fixture(scope="session")
async def temporal() -> AsyncIterator[WorkflowEnvironment]:
    async with real_server() as environment:
        yield environment


@pytest.fixture
async def guarding(temporal: WorkflowEnvironment) -> AsyncIterator[Guarding]:
    cluster = f"c{next(_clusters)}"
    client: Client = temporal.client
    selection = Selection(cluster=cluster, terms=Terms(mode=Mode.ACT, acknowledged=True))
    worker = Worker(
        client, task_queue=cluster, workflows=[JobRecoveryUntilTold], workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with worker:
        yield Guarding(client, cluster, Adopter(client, cluster, selection), selection)
