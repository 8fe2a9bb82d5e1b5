"""The activities that ask: beside relight's own attribution, which is never kept waiting, and in the background."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.assessment import Attribution
from activities.attribution.http import HttpService
from activities.attribution.nvrx import NvrxService
from activities.attribution.settings import HttpSettings, NvrxSettings
from activities.logs.protocol import LogCursor
from activities.second_opinion import Counsel, OpinionOrder, SecondOpinion
from recovery.model import Action, SymptomKind
from recovery.opinion import Hint, NoOpinion, Opinion
from tests.assess.test_attribution import Assessment
from tests.opinions.parts import Asked, Reply, StandIn, one_after_another, standing_in


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[Assessment]:
    assessment = Assessment(tmp_path)
    assessment.out.write_text("iteration 1\nRuntimeError: something broke\n")
    assessment.err.write_text("")
    yield assessment
    await assessment.logs.close()


def answer(**told: Any) -> Reply:
    return Reply(json.dumps({"status": "completed", **told}))


def service_at(stand_in: StandIn, **changes: Any) -> HttpService:
    return HttpService(HttpSettings.model_validate({"kind": "http", "name": "ours", "url": stand_in.url, **changes}))


async def second(job: Assessment, service: HttpService | NvrxService) -> SecondOpinion:
    order = job.order()
    attribution = await job.attribute(order)
    sent = OpinionOrder(attempt=order, attribution=attribution, key="recovery/c1/4711@1#0.1")
    counsel = Counsel(service, job.assessor)
    heard: SecondOpinion = await ActivityEnvironment().run(
        counsel.second_opinion, OpinionOrder.model_validate_json(sent.model_dump_json())
    )
    await service.close()
    return SecondOpinion.model_validate_json(heard.model_dump_json())


async def attributed(job: Assessment, service: HttpService) -> Attribution:
    job.assessor._service = service
    found = await job.attribute(job.order(decide_too=True))
    await service.close()
    return found


async def test_a_second_opinion_comes_with_the_policys_answer_to_it(job: Assessment) -> None:
    async with standing_in(one_after_another(answer(action="stop", text="seen before"))) as stand_in:
        found = await second(job, service_at(stand_in))
    assert isinstance(found.heard, Opinion)
    assert found.decided is not None
    assert (found.decided.decision.action, found.decided.decision.rule) == (Action.STOP, "service_stop")
    asked = json.loads(stand_in.asked[0].body)
    assert [line["text"] for line in asked["lines"]] == ["iteration 1", "RuntimeError: something broke"]
    assert (asked["key"], asked["phase"], asked["failed"]) == ("recovery/c1/4711@1#0.1", "slow", True)
    assert asked["verdict"]["cause"]


async def test_no_opinion_is_nothing_to_decide_on(job: Assessment) -> None:
    async with standing_in(one_after_another(Reply("nobody", 403))) as stand_in:
        found = await second(job, service_at(stand_in))
    assert isinstance(found.heard, NoOpinion)
    assert found.decided is None


async def test_a_fast_opinion_is_there_or_is_not_and_nobody_waits_for_it(job: Assessment) -> None:
    async with standing_in(one_after_another(answer(action="stop"))) as stand_in:
        at_once = await attributed(job, service_at(stand_in))
    assert at_once.opinion is not None
    assert at_once.decided is not None
    assert (at_once.opinion.hint, at_once.decided.decision.action) == (Hint.STOP, Action.STOP)
    assert json.loads(stand_in.asked[0].body)["verdict"] is None

    async with standing_in(one_after_another(Reply("{}", delay_s=60))) as stand_in:
        begun_s = time.monotonic()
        slow = await attributed(job, service_at(stand_in, fast_s=10, timeout_s=100))
        took_s = time.monotonic() - begun_s
    assert (slow.opinion, took_s < 9) == (None, True)
    assert slow.decided is not None
    assert slow.decided.decision.action is Action.RESTART


async def test_a_service_without_a_fast_phase_is_not_asked_then(job: Assessment) -> None:
    async with standing_in(one_after_another(answer(action="stop"))) as stand_in:
        found = await attributed(job, service_at(stand_in, fast_s=0))
    assert (found.opinion, stand_in.asked) == (None, [])


async def test_a_file_that_holds_earlier_attempts_is_not_given_away(job: Assessment) -> None:
    def replies(asked: Asked) -> Reply:
        return Reply('{"status":"completed","result":{},"recommendation":{"action":"STOP"}}')

    async with standing_in(replies) as stand_in:
        settings = NvrxSettings.model_validate({"kind": "nvrx", "url": stand_in.url})
        appended = job.order(began=(LogCursor(source=str(job.out), offset=12),))
        attribution = await job.attribute(appended)
        counsel = Counsel(service := NvrxService(settings), job.assessor)
        sent = OpinionOrder(attempt=appended, attribution=attribution, key="k")
        found = await ActivityEnvironment().run(counsel.second_opinion, sent)
        own = job.order(began=(LogCursor(source=str(job.out)),))
        stop = await ActivityEnvironment().run(counsel.second_opinion, sent.model_copy(update={"attempt": own}))
        await service.close()
    assert isinstance(found.heard, NoOpinion)
    assert "copy_dir" in found.heard.reason
    assert isinstance(stop.heard, Opinion)
    assert json.loads(stand_in.asked[0].body)["log_path"] == str(job.out)


async def test_what_may_be_a_quotation_is_told_as_such(job: Assessment) -> None:
    async with standing_in(one_after_another(answer(action="continue"))) as stand_in:
        service = service_at(stand_in)
        counsel, order = Counsel(service, job.assessor), job.order(symptom=SymptomKind.NONE)
        attribution = await job.attribute(order)
        sent = OpinionOrder(attempt=order, attribution=attribution, key="k")
        await ActivityEnvironment().run(counsel.second_opinion, sent)
        await service.close()
    assert json.loads(stand_in.asked[0].body)["failed"] is False
