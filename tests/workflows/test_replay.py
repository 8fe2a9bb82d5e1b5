"""Running workflows outlive the code that started them: what is recorded replays, and no story needs a cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.workflows.record import MAX_HISTORY_BYTES, histories, path_of
from tests.workflows.servers import IDENTITY
from tests.workflows.stage import STRICT_SANDBOX, Stage
from tests.workflows.stories import STORIES, Handle
from workflows.cluster import ClusterWatch
from workflows.job import JobRecovery

MEND = (
    "this change breaks workflows that are running: keep the old way behind workflow.patched(), "
    "or, where none is running yet, record anew with `python -m tests.workflows.record`"
)


@pytest.mark.temporal
@pytest.mark.parametrize(
    "name", ["approval", "bad_node", "cluster", "fatal_line", "no_answers", "people", "second_opinion"]
)
async def test_a_story_holds_when_each_task_replays_the_whole_history(forgetful_stage: Stage, name: str) -> None:
    handle = await STORIES[name](forgetful_stage)

    assert (await handle.describe()).status in (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.RUNNING)
    assert not await _failed_tasks(handle)


async def _failed_tasks(handle: Handle) -> list[str]:
    attributes = [event.workflow_task_failed_event_attributes async for event in handle.fetch_history_events()]
    return [failed.failure.message for failed in attributes if failed.failure.message]


async def test_recorded_histories_replay_with_todays_code() -> None:
    replayer = Replayer(
        workflows=[JobRecovery, ClusterWatch],
        data_converter=pydantic_data_converter,
        workflow_runner=STRICT_SANDBOX,
        workflow_failure_exception_types=[Exception],
    )

    async with replayer.workflow_replay_iterator(histories()) as results:
        failures = {result.history.workflow_id: result.replay_failure async for result in results}

    broken = {workflow_id: failure for workflow_id, failure in failures.items() if failure}
    assert not broken, f"{MEND}: {broken}"
    assert len(failures) == len(STORIES)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_every_story_is_recorded_in_bounded_size_and_without_a_trace_of_the_machine(name: str) -> None:
    text = path_of(name).read_text()

    assert len(text) < MAX_HISTORY_BYTES
    assert f'"identity":"{IDENTITY}"' in text
    assert str(Path(__file__).parents[2]) not in text
