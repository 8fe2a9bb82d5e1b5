"""A workflow for each task of an array, and what they learn of each other through the cluster's."""

from __future__ import annotations

import pytest

from recovery.model import Action
from recovery.notices import NoticeKind
from recovery.policy import ArrayStop, PolicySettings
from tests.workflows import parts
from tests.workflows.stage import Job, Stage, eventually
from workflows.state import RecoveryState

ONE_RETRY_LESS = PolicySettings(array_stop=ArrayStop(tasks=2, fraction=0.5))


async def _task(stage: Stage, task: int) -> Job:
    """Take a task of array 3 under guard."""
    return await stage.adopt(job_id=f"3_{task}", array_job_id="3")


async def _fails(stage: Stage, task: int) -> RecoveryState:
    """A task fails, is answered, and is gone."""
    job = await _task(stage, task)
    stage.reports(parts.ended(exit_code=1))
    state = await job.until(lambda state: state.reconciliation is not None)
    if not state.closed:
        stage.reports(parts.gone())
    await job.report()
    return state


@pytest.fixture
def alike(stage: Stage) -> Stage:
    """All tasks fail by the same error of their program."""
    stage.verdict = parts.user_error()
    stage.policy = ONE_RETRY_LESS
    return stage


async def test_the_second_of_two_tasks_that_fail_alike_is_not_retried_and_people_are_told_once(alike: Stage) -> None:
    await alike.look_after_cluster()
    answers = [await _fails(alike, task) for task in (1, 2, 3)]

    told = [state.advice for state in answers]
    assert [advice.action for advice in told if advice] == [Action.RESTART, Action.STOP, Action.STOP]
    assert [advice.rule for advice in told if advice][1:] == ["array_systematic"] * 2
    await eventually(lambda: any(notice.kind is NoticeKind.ARRAY_SYSTEMATIC for notice in alike.notices))
    [notice] = [notice for notice in alike.notices if notice.kind is NoticeKind.ARRAY_SYSTEMATIC]
    assert notice.text.startswith(f"array {alike.cluster}/3: 2 of 2 started tasks of the array failed in the same way")
    # Task 1 failed before it was known to be systematic, and nobody is told of tasks 2 and 3 one by one.
    assert sum(notice.failures for notice in alike.notices) <= 1


async def test_tasks_that_run_or_completed_speak_for_the_array(alike: Stage) -> None:
    await alike.look_after_cluster()
    completed = await _task(alike, 1)
    alike.reports(parts.completed())
    await completed.report()
    siblings = tuple(parts.record(f"3_{task}", array_job_id="3") for task in (4, 5))
    others = (parts.record("7"), parts.record("8_1", array_job_id="8"), parts.record("3_2", 1, array_job_id="3"))
    alike.reading = alike.reading.model_copy(update={"jobs": siblings + others})

    await _fails(alike, 2)
    state = await _fails(alike, 3)

    assert state.advice is not None
    assert state.advice.action is Action.RESTART
    standing = alike.situations[-1].array
    assert standing is not None
    assert (standing.same, standing.failed, standing.completed, standing.running) == (2, 2, 1, 2)


@pytest.mark.parametrize("silent", ["the cluster's workflow", "the worker"])
async def test_without_an_answer_a_task_is_decided_on_by_itself(alike: Stage, silent: str) -> None:
    if silent == "the worker":
        await alike.look_after_cluster()
        alike.comparison.gives_up()
    state = await _fails(alike, 1)

    assert state.advice is not None
    assert state.advice.action is Action.RESTART
    assert alike.situations[-1].array is None


async def test_a_fatal_line_that_may_be_a_quotation_counts_for_nothing(alike: Stage) -> None:
    await alike.look_after_cluster()
    job = await _task(alike, 1)
    alike.reports(parts.faulted(certain=False), parts.survived())
    await job.until(lambda state: state.generation == 1 and state.advice is None)

    assert "compare" not in alike.program


async def test_a_job_that_is_no_task_asks_nobody(alike: Stage) -> None:
    job = await alike.adopt()
    alike.reports(parts.ended(exit_code=1), parts.completed())
    await job.report()

    assert "compare" not in alike.program
