"""Replays the workflows of a run with today's code."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from workflows.cluster import ClusterWatch
from workflows.job import JobRecovery

MAX_CHARS = 500


async def replay(address: str, workflow_ids: Iterable[str]) -> tuple[int, dict[str, str]]:
    """Fetch and replay the newest run of each workflow; return how many there were, and what went wrong by id."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    replayer = Replayer(workflows=[JobRecovery, ClusterWatch], data_converter=pydantic_data_converter)
    replayed, failures = 0, {}
    for workflow_id in workflow_ids:
        try:
            history = await client.get_workflow_handle(workflow_id).fetch_history()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                continue
            raise
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        replayed += 1
        if result.replay_failure is not None:
            failures[workflow_id] = str(result.replay_failure)[:MAX_CHARS]
    return replayed, failures


async def existing(address: str, workflow_ids: Iterable[str]) -> set[str]:
    """Return which of the workflows were ever started."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    found = set()
    for workflow_id in workflow_ids:
        try:
            await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            found.add(workflow_id)
    return found
