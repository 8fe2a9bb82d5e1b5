"""What comes back instead of an answer: never a reason to act, never asked twice, and always said clearly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from activities.scheduler.protocol import (
    Invalid,
    JobUnknown,
    NotPending,
    NotPermitted,
    Refused,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from activities.scheduler.rest_client import RestClient, RestServer
from tests.rest.server import (
    PATHS_OF_26_05,
    Answer,
    endless,
    hung_up,
    in_turn,
    said,
    said_bytes,
    scripted,
    silence,
    transport,
)

READINGS: list[Callable[[SlurmRest], Awaitable[object]]] = [
    lambda rest: rest.jobs(),
    lambda rest: rest.job("7"),
    lambda rest: rest.nodes(),
]
VERBS: list[Callable[[SlurmRest], Awaitable[None]]] = [
    lambda rest: rest.requeue_hold("7"),
    lambda rest: rest.requeue("7"),
    lambda rest: rest.constrain("7", exclude=("node01",)),
    lambda rest: rest.release("7"),
    lambda rest: rest.start_now("7"),
    lambda rest: rest.allow_requeue("7"),
    lambda rest: rest.cancel("7"),
]
NO_JOBS = said({"jobs": [], "errors": []})
NO_ANSWERS: dict[str, tuple[Answer, str]] = {
    "HTML": (
        said_bytes(b"<html>Bad Gateway</html>", status=502, kind="text/html"),
        "502 with text/html instead of JSON",
    ),
    "HTML that claims to be well": (said_bytes(b"<html>Hello</html>", kind="text/html"), "text/html instead of JSON"),
    "nothing": (said_bytes(b"", status=503, kind=""), "503 with nothing instead of JSON"),
    "half a JSON": (said_bytes(b'{"jobs": [{"job_id": 7,', kind="application/json"), "EOF|cannot be read|answer"),
    "half of what was announced": (
        said_bytes(b'{"errors": []', kind="application/json", length=5_000),
        "gave no answer.*may have been done",
    ),
    "another JSON": (said_bytes(b"[1, 2]", kind="application/json"), "Input should be|Expected `object`"),
    "a hang-up": (hung_up, "gave no answer.*may have been done"),
    "silence": (silence, "did not answer within 0.3 s"),
    "an endless answer": (endless, "more than 100000 bytes"),
    "a redirect": (said_bytes(b"", status=302, kind="text/html"), "elsewhere.*set url"),
    "a refused token": (said_bytes(b"Authentication failure", status=401, kind="text/plain"), "set token_file"),
    "an error without a word": (said({"errors": []}, status=500), "500"),
    "a controller that is away": (
        said({"errors": [{"error_number": 1800, "error": "Unable to contact slurm controller"}]}, status=500),
        "Unable to contact slurm controller.*1800",
    ),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_what_is_no_answer_is_unavailable_and_is_asked_for_once(name: str) -> None:
    answer, words = NO_ANSWERS[name]
    timeout_s = 0.3 if answer is silence else 20
    async with (
        scripted(answer) as server,
        transport(server, timeout_s=timeout_s, max_answer_bytes=100_000) as rest,
    ):
        for ask in [*READINGS, *VERBS]:
            server.asked.clear()
            with pytest.raises(SchedulerUnavailable, match=words) as raised:
                await ask(rest)
            assert len(server.asked) == 1
            assert "slurmrestd of alpha" in str(raised.value)
            assert len(str(raised.value)) < 600


async def test_nobody_listening_says_which_server_and_what_to_see_to() -> None:
    client = RestClient(RestServer("http://127.0.0.1:9", cluster="alpha"), None)
    with pytest.raises(SchedulerUnavailable, match=r"alpha at http://127.0.0.1:9 .* whether it runs"):
        await SlurmRest(RestApi(client)).jobs()
    await client.close()


async def test_no_socket_says_which_server_and_what_to_see_to() -> None:
    client = RestClient(RestServer("unix:/nowhere/slurmrestd.sock"), None)
    with pytest.raises(SchedulerUnavailable, match=r"unix:/nowhere/slurmrestd.sock .* whether it runs"):
        await SlurmRest(RestApi(client)).jobs()
    await client.close()


async def test_a_door_that_is_closed_before_slurmrestd_is_no_answer_to_a_read_and_not_permitted_to_a_verb() -> None:
    async with scripted(said_bytes(b"Forbidden", status=403, kind="text/html")) as server, transport(server) as rest:
        with pytest.raises(SchedulerUnavailable, match="allow this account"):
            await rest.jobs()
        with pytest.raises(NotPermitted, match="allow this account"):
            await rest.cancel("7")


REFUSALS: list[tuple[int, str, type[SchedulerError]]] = [
    (2017, "Invalid job id specified", JobUnknown),
    (2002, "Access/permission denied", NotPermitted),
    (2073, "Job is no longer pending execution", NotPending),
    (2018, "Invalid node name specified", Invalid),
    (2084, "Job has already finished", Refused),
    (2037, "Requested operation is presently disabled", Refused),
    (1234, "A word of a later Slurm", SchedulerUnavailable),
]


@pytest.mark.parametrize(("number", "words", "kind"), REFUSALS)
async def test_slurms_words_mean_the_same_as_from_its_commands(
    number: int, words: str, kind: type[SchedulerError]
) -> None:
    error = {"error_number": number, "error": words, "description": "Job update requested failed", "source": "x"}
    async with scripted(said({"errors": [error]}, status=500)) as server, transport(server) as rest:
        for verb in VERBS:
            with pytest.raises(SchedulerError, match=rf"job 7.*{words}") as raised:
                await verb(rest)
            assert type(raised.value) is kind


@pytest.mark.parametrize(
    "content",
    [
        {"results": [{"error_code": 2017, "error": "Invalid job id specified", "why": ""}]},
        {"status": [[{"error_code": 2017, "error": "Invalid job id specified", "why": ""}]]},
        {"status": [{"error": {"code": 2017, "string": "Invalid job id specified", "message": ""}}]},
    ],
    ids=["update", "requeue", "cancel"],
)
async def test_a_refusal_beside_the_status_of_success_is_a_refusal(content: dict[str, object]) -> None:
    async with scripted(said({**content, "errors": [], "warnings": []})) as server, transport(server) as rest:
        for verb in VERBS:
            with pytest.raises(JobUnknown, match="job 7"):
                await verb(rest)


async def test_outcomes_without_a_fault_are_success() -> None:
    fine = {"results": None, "status": [[{"error_code": 0, "error": "No error", "why": ""}]], "errors": []}
    async with scripted(said(fine)) as server, transport(server) as rest:
        for verb in VERBS:
            await verb(rest)


async def test_a_job_that_is_over_is_no_error_to_its_cancelling_only() -> None:
    over = {"status": [{"error": {"code": 2021, "string": "Job/step already completing or completed"}}], "errors": []}
    async with scripted(said(over)) as server, transport(server) as rest:
        await rest.cancel("7")
        with pytest.raises(SchedulerError):
            await rest.release("7")


async def test_a_server_that_was_updated_is_asked_for_its_versions_again() -> None:
    gone = said_bytes(b"Unable to find requested URL", status=404, kind="text/plain")
    async with scripted(in_turn(NO_JOBS, gone, NO_JOBS)) as server, transport(server) as rest:
        server.paths = tuple(path for path in PATHS_OF_26_05 if "v0.0.45" not in path)
        await rest.jobs()
        server.paths = PATHS_OF_26_05
        with pytest.raises(SchedulerUnavailable, match="updated"):
            await rest.jobs()
        assert (await rest.jobs()).jobs == ()
        assert [asked.path for asked in server.asked] == [
            "/slurm/v0.0.44/jobs",
            "/slurm/v0.0.44/jobs",
            "/slurm/v0.0.45/jobs",
        ]
        assert server.asked_for_versions == 2


async def test_a_stalled_server_does_not_hold_up_whoever_gave_up_waiting() -> None:
    async with scripted(silence) as server, transport(server) as rest:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await rest.jobs()
