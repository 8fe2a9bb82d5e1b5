"""NVIDIA's own service, both releases: what it says reaches us as it means it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from activities.attribution.nvrx import NvrxService
from activities.attribution.protocol import AskPhase
from activities.attribution.settings import NvrxSettings
from recovery.attribution.incident import LogLine
from recovery.opinion import Heard, Hint, NoOpinion, Opinion
from tests.opinions.attrsvc import RunningService, language_model, running_attrsvc
from tests.opinions.parts import Asked, Reply, question, standing_in
from tests.stores.servers import NoStore

pytestmark = pytest.mark.timeout(240)

MISSING_FILE = ("0: FileNotFoundError: [Errno 2] No such file or directory: '/data/shard_0001.bin'",)


@pytest.fixture(scope="module")
def attrsvc() -> Iterator[RunningService]:
    with tempfile.TemporaryDirectory(prefix="relight-attrsvc-") as directory:
        try:
            with running_attrsvc("0.7", Path(directory), drain_s=1.0) as service:
                yield service
        except NoStore as missing:
            pytest.skip(str(missing))


async def heard(service: RunningService, *, slow_s: float = 120.0, copies: bool = True, **told: object) -> Heard:
    settings = NvrxSettings.model_validate(
        {
            "kind": "nvrx",
            "url": service.url,
            "slow_s": slow_s,
            "timeout_s": 5,
            "poll_interval_s": 0.5,
            "max_asks_per_min": 600,
            "copy_dir": str(service.root) if copies else None,
        }
    )
    client = NvrxService(settings)
    try:
        return await client.ask(question(**told), AskPhase.SLOW)
    finally:
        await client.close()


async def test_the_same_failure_at_the_same_step_is_restarted_three_times_and_then_stopped(
    attrsvc: RunningService,
) -> None:
    hints = []
    for attempt in range(4):
        found = await heard(attrsvc, attempt=attempt)
        assert isinstance(found, Opinion), found
        hints.append(found.hint)
    assert hints == [Hint.RESTART, Hint.RESTART, Hint.RESTART, Hint.STOP]
    assert found.cause == "observed_exception"
    assert list(attrsvc.root.iterdir()) == []


async def test_another_job_with_the_same_id_starts_anew(attrsvc: RunningService) -> None:
    job = question().job
    later = job.model_copy(update={"job_id": "88", "submitted_at": job.submitted_at.replace(hour=20)})
    for attempt in range(4):
        await heard(attrsvc, attempt=attempt, job=job.model_copy(update={"job_id": "88"}))
    found = await heard(attrsvc, attempt=4, job=later)
    assert isinstance(found, Opinion)
    assert found.hint is Hint.RESTART


async def test_the_jobs_own_file_is_read_where_it_is_the_attempts_alone(attrsvc: RunningService) -> None:
    file = attrsvc.root.parent / "root" / "train.out"
    file.write_text("\n".join(MISSING_FILE) + "\n")
    job = question().job.model_copy(update={"job_id": "90"})
    found = await heard(attrsvc, job=job, own_files=(str(file),), lines=(), copies=False)
    again = await heard(attrsvc, job=job, attempt=1, own_files=(str(file),), lines=(), copies=False)
    file.unlink()
    assert isinstance(found, Opinion)
    assert found.hint is Hint.RESTART
    assert isinstance(again, NoOpinion)
    assert "set `copy_dir`" in again.reason


async def test_a_file_outside_its_root_is_refused_with_the_remedy(attrsvc: RunningService, tmp_path: Path) -> None:
    (tmp_path / "train.out").write_text("x\n")
    found = await heard(attrsvc, own_files=(str(tmp_path / "train.out"),), copies=False)
    assert isinstance(found, NoOpinion)
    assert "ALLOWED_ROOT" in found.reason


async def test_it_takes_longer_than_it_is_waited_for(attrsvc: RunningService) -> None:
    job = question().job.model_copy(update={"job_id": "91"})
    found = await heard(attrsvc, slow_s=1.0, job=job)
    assert isinstance(found, NoOpinion)
    assert "within 1 s" in found.reason


@pytest.fixture(scope="module")
async def older() -> AsyncIterator[tuple[RunningService, list[Asked]]]:
    """The release before, with a language model that takes its time once."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(standing_in(_slow_at_first()))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="relight-attrsvc-"))
        try:
            starting = running_attrsvc("0.6", Path(directory), model_url=f"{model.url}/v1")
            service = await asyncio.to_thread(stack.enter_context, starting)
        except NoStore as missing:
            pytest.skip(str(missing))
        yield service, model.asked


def _slow_at_first():  # type: ignore[no-untyped-def]
    asked_before: list[Asked] = []

    def replies(asked: Asked) -> Reply:
        reply = language_model(asked)
        asked_before.append(asked)
        return Reply(reply.body, delay_s=7.0 if len(asked_before) == 1 else 0.0)

    return replies


async def test_the_older_release_is_understood_although_it_keeps_its_asker_waiting(
    older: tuple[RunningService, list[Asked]],
) -> None:
    service, asked = older
    found = await heard(service, lines=tuple(LogLine(text=text) for text in ("0: iteration 1", *MISSING_FILE)))
    assert isinstance(found, Opinion), found
    assert found.hint in (Hint.STOP, Hint.CONTINUE)
    assert found.text
    assert asked
