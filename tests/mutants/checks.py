"""The checks that have to find the planted bugs. Each takes a second or two and raises AssertionError where a promise
is broken; without a bug none does."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from activities.findings import Ended, Faulted
from activities.scheduler import requeue
from activities.scheduler.protocol import JobState
from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, LogLine
from recovery.model import Action, Verdict
from recovery.policy import PastAttempt, PolicySettings, decide
from tests.model.guarded import play_guarded
from tests.protocol.machine import Protocol, WithWindows, play
from tests.unit.situations import a_situation, a_verdict, bug, gpu
from tests.watch.scripted import XID, JobUnderWatch, Watch
from tests.workflows import parts
from tests.workflows.record import path_of
from tests.workflows.servers import skipping_server
from tests.workflows.stage import STRICT_SANDBOX, Stage
from workflows.cluster import ClusterWatch
from workflows.job import JobRecovery

SEEDS = 400
"""Of each model, one after the other until something is found. Every mutant is found in far fewer."""
MAX_RESTARTS = 30
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz"


def model() -> None:
    """The action protocol among people, crashes and lost answers."""
    with _no_pause_of_this_process_counts():
        for seed in range(SEEDS):
            play(Protocol, seed)
            play(WithWindows, seed)


def guarded_model() -> None:
    """The same with the watchdog and an operator who changes their mind."""
    with _no_pause_of_this_process_counts():
        for seed in range(SEEDS):
            play_guarded(seed)


@contextmanager
def _no_pause_of_this_process_counts() -> Iterator[None]:
    """The only clock of the models is their own, so that a run can be repeated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requeue, "STALE_AFTER_S", math.inf)
        yield


def story() -> None:
    """A job's workflow, told to the server that skips time: nothing is done that was not on record before."""

    async def told() -> list[str]:
        async with skipping_server() as server:
            stage = Stage(server.client, "mutants", server.get_current_time)
            async with stage.open():
                stage.verdict = parts.bad_node("node02")
                job = await stage.adopt()
                stage.reports(parts.ended(exit_code=1, checkpoint=100), parts.allocated(), parts.completed())
                await job.report()
                await stage.close()
                return stage.program

    program = asyncio.run(told())
    acts = [place for place, word in enumerate(program) if word.startswith("act:")]
    assert acts
    for place in acts:
        assert "audit:ordered" in program[:place], f"{program[place]} with nothing ordered before"


def replays() -> None:
    """A recorded history replays with the code as it is."""

    async def failure() -> Exception | None:
        replayer = Replayer(
            workflows=[JobRecovery, ClusterWatch],
            data_converter=pydantic_data_converter,
            workflow_runner=STRICT_SANDBOX,
        )
        history = WorkflowHistory.from_json("bad_node", path_of("bad_node").read_text())
        return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure

    assert asyncio.run(failure()) is None


def next_attempt() -> None:
    """A fatal line of the attempt before is no finding of the next one."""

    async def silent() -> bool:
        with tempfile.TemporaryDirectory() as directory:
            async with JobUnderWatch(Path(directory)).open() as job:
                job.writes(XID)
                job.shows(JobState.FAILED, exit_code=1)
                first = Watch(job, job.order())
                ended = await first.finding()
                assert isinstance(ended, Ended | Faulted)
                job.shows(JobState.RUNNING, 1)
                second = Watch(job, job.order_of_next_attempt(ended, 1))
                try:
                    return await second.silent_for(2.0)
                finally:
                    await second.stop()

    assert asyncio.run(silent()), "an old line is a finding again"


def evidence() -> None:
    """What a verdict quotes has no secret in it."""
    said = f"RuntimeError: 401 Client Error for url: https://hub/?token={TOKEN} HF_TOKEN={TOKEN}"
    lines = ("Traceback (most recent call last):", '  File "train.py", line 7, in <module>', said)
    facts = JobFacts(job_id="7", nodes=("node01",), state="FAILED", exit_code=1)
    verdict = attribute(Incident(lines=tuple(LogLine(text=line) for line in lines), facts=facts))
    assert verdict.evidence
    assert TOKEN not in verdict.model_dump_json()


def careers() -> None:
    """A job that fails for ever without a new checkpoint is stopped, whatever it fails of."""
    for verdict in (bug(), gpu("node02"), a_verdict()):
        restarts = _restarts(verdict)
        assert restarts < MAX_RESTARTS, f"{verdict.cause}: restarted {restarts} times"


def _restarts(verdict: Verdict) -> int:
    past: tuple[PastAttempt, ...] = ()
    while len(past) < MAX_RESTARTS:
        decision = decide(a_situation(verdict, history=past, checkpoint=100), PolicySettings())
        if decision.action is Action.STOP:
            break
        past += (
            PastAttempt(
                attempt=len(past),
                category=verdict.category,
                cause=verdict.cause,
                fingerprint=verdict.fingerprint,
                action=decision.action,
                checkpoint=100,
            ),
        )
    return len(past)
