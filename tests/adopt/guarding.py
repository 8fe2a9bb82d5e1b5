"""One cluster's job workflows on a real server, as the tests start them, look at them and end them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.adopt import CLOSED_PHASE, PHASE, Adopter, Guard, RecoveryStart, Selection
from activities.scheduler.protocol import JobRecord, JobState
from recovery.optin import OptIn, parse_comment

OPTED_IN = '{"relight": {"mode": "act"}}'


def seconds_ago(seconds: float) -> datetime:
    """Slurm tells whole seconds."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).replace(microsecond=0)


@dataclass
class Guarding:
    """The workflows of one cluster's jobs."""

    client: Client
    cluster: str
    adopter: Adopter
    selection: Selection

    def record(self, job_id: str = "7", state: JobState = JobState.RUNNING, **facts: Any) -> JobRecord:
        return JobRecord(
            **{
                "job_id": job_id,
                "state": state,
                "partition": "gpu",
                "name": "pretrain",
                "user": "ana",
                "submitted_at": seconds_ago(60),
                "comment": OPTED_IN,
                **facts,
            }
        )

    async def adopt(self, record: JobRecord, adopter: Adopter | None = None) -> bool:
        """Whether it is guarded now, or dealt with."""
        optin = parse_comment(record.comment) or OptIn()
        return await (adopter or self.adopter).adopt(record, optin) is not Guard.NOT_YET

    async def described(self, job_id: str = "7") -> WorkflowExecutionDescription | None:
        try:
            return await self.client.get_workflow_handle(f"recovery/{self.cluster}/{job_id}").describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def run_id(self, job_id: str = "7") -> str:
        """Which run guards the job, or did so last; empty: none ever."""
        description = await self.described(job_id)
        return (description.run_id or "") if description else ""

    async def is_guarded(self, job_id: str = "7") -> bool:
        description = await self.described(job_id)
        return description is not None and description.status is WorkflowExecutionStatus.RUNNING

    async def start_of(self, job_id: str = "7") -> RecoveryStart:
        """What the job's workflow was started with."""
        history = await self.client.get_workflow_handle(f"recovery/{self.cluster}/{job_id}").fetch_history()
        payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
        start: RecoveryStart = (await self.client.data_converter.decode(payloads[:1], [RecoveryStart]))[0]
        return start

    async def close(self, job_id: str, attempt_submitted_at: datetime, *, resubmitted_as: str = "") -> None:
        """Let the job's workflow end, with that attempt as the last that it knew."""
        handle = self.client.get_workflow_handle(f"recovery/{self.cluster}/{job_id}")
        await handle.signal("resubmitted", resubmitted_as)
        await handle.signal("end", attempt_submitted_at)
        await handle.result()

    async def close_but_stay(self, job_id: str, attempt_submitted_at: datetime, *, resubmitted_as: str = "") -> None:
        """Let the guard end while the job's workflow stays, to put on record what is still under way."""
        handle = self.client.get_workflow_handle(f"recovery/{self.cluster}/{job_id}")
        await handle.signal("resubmitted", resubmitted_as)
        await handle.signal("close_but_stay", attempt_submitted_at)
        async with asyncio.timeout(10):
            while (await handle.describe()).typed_search_attributes.get(PHASE) != CLOSED_PHASE:
                await asyncio.sleep(0.05)

    async def until_adopted(self, record: JobRecord, timeout_s: float = 10) -> None:
        """Try again as each reading does."""
        async with asyncio.timeout(timeout_s):
            while not await self.adopt(record):
                await asyncio.sleep(0.05)

    async def until_guarded(self, *job_ids: str, timeout_s: float = 10) -> None:
        async with asyncio.timeout(timeout_s):
            for job_id in job_ids:
                while not await self.is_guarded(job_id):
                    await asyncio.sleep(0.05)
