"""The token: from where it comes, that it is renewed in time, and that nobody gets to see it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.command import LocalRunner
from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.rest_token import (
    TokenKeeper,
    parse_token,
    token_command,
    token_file,
    token_variable,
)
from tests.rest.server import Answer, Asked, in_turn, said, said_bytes, scripted, transport
from tests.rest.tokens import made_token

NO_JOBS = said({"jobs": [], "errors": []})
REFUSED = said_bytes(b"Authentication failure", status=401, kind="text/plain")
REFUSED_BY_SLURM = said(
    {"jobs": [], "errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}, status=511
)


def sent_token(asked: Asked) -> str:
    return asked.headers["x-slurm-user-token"]


async def test_a_request_carries_the_token_and_whom_it_names(tmp_path: Path) -> None:
    token = made_token(user="trainer")
    (tmp_path / "jwt").write_text(f"SLURM_JWT={token}\n")
    async with scripted(NO_JOBS) as server, transport(server, TokenKeeper(token_file(tmp_path / "jwt"))) as rest:
        await rest.jobs()
    assert sent_token(server.asked[0]) == token
    assert server.asked[0].headers["x-slurm-user-name"] == "trainer"


async def test_a_token_that_is_about_to_end_is_replaced_before_it_does(tmp_path: Path) -> None:
    file = tmp_path / "jwt"
    old, new = made_token(lasts=timedelta(seconds=30)), made_token()
    file.write_text(old)
    async with scripted(NO_JOBS) as server, transport(server, TokenKeeper(token_file(file))) as rest:
        await rest.jobs()
        file.write_text(new)
        await rest.jobs()
        file.write_text("gone")
        await rest.jobs()
    assert [sent_token(asked) for asked in server.asked] == [old, new, new]


@pytest.mark.parametrize("refusal", [REFUSED, REFUSED_BY_SLURM], ids=["slurmrestd's", "Slurm's"])
async def test_after_a_refused_token_another_one_is_tried_once(tmp_path: Path, refusal: Answer) -> None:
    file = tmp_path / "jwt"
    file.write_text(made_token(mark="one"))
    answer = in_turn(NO_JOBS, refusal, said({"errors": []}))
    async with scripted(answer) as server, transport(server, TokenKeeper(token_file(file))) as rest:
        await rest.jobs()
        file.write_text(made_token(mark="two"))
        await rest.release("7")
    assert [sent_token(asked)[-3:] for asked in server.asked] == ["one", "one", "two"]


async def test_a_refused_token_that_has_no_successor_is_not_sent_again(tmp_path: Path) -> None:
    file = tmp_path / "jwt"
    file.write_text(made_token())
    async with scripted(REFUSED) as server, transport(server, TokenKeeper(token_file(file))) as rest:
        with pytest.raises(SchedulerUnavailable, match=rf"alpha .* does not accept the token \(401\): .*{file}"):
            await rest.release("7")
    assert len(server.asked) == 1


async def test_two_refused_tokens_are_enough() -> None:
    marks = iter("abcdefgh")
    source = token_variable("X")._replace(read=lambda: _soon(made_token(mark=next(marks))))
    async with scripted(REFUSED) as server, transport(server, TokenKeeper(source)) as rest:
        with pytest.raises(SchedulerUnavailable, match="does not accept the token"):
            await rest.jobs()
    assert len(server.asked) == 2


async def _soon(text: str) -> str:
    return text


async def test_a_token_that_has_ended_is_not_sent_and_says_when(tmp_path: Path) -> None:
    (tmp_path / "jwt").write_text(made_token(lasts=timedelta(seconds=-5)))
    async with scripted(NO_JOBS) as server, transport(server, TokenKeeper(token_file(tmp_path / "jwt"))) as rest:
        with pytest.raises(
            SchedulerUnavailable, match=r"jwt ended at 20\d\d-.* UTC; make a new one with scontrol token"
        ):
            await rest.jobs()
    assert not server.asked
    assert not server.asked_for_versions


async def test_a_command_gives_a_token_without_a_shell() -> None:
    token = made_token()
    source = token_command(
        (sys.executable, "-c", "import sys; print('SLURM_JWT=' + sys.argv[1])", token), LocalRunner()
    )
    assert (await TokenKeeper(source).current()).secret.get_secret_value() == token


async def test_a_command_that_fails_says_its_last_word() -> None:
    source = token_command((sys.executable, "-c", "raise SystemExit('no key here')"), LocalRunner())
    with pytest.raises(SchedulerUnavailable, match=r"python\S* exited with 1: no key here"):
        await TokenKeeper(source).current()


async def test_a_variable_gives_a_token_and_one_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    token = made_token()
    monkeypatch.setenv("A_JWT", token)
    assert (await TokenKeeper(token_variable("A_JWT")).current()).secret.get_secret_value() == token
    monkeypatch.delenv("A_JWT")
    with pytest.raises(SchedulerUnavailable, match="A_JWT is not set"):
        await TokenKeeper(token_variable("A_JWT")).current()


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchedulerUnavailable, match="none cannot be read"):
        await TokenKeeper(token_file(tmp_path / "none")).current()


@given(st.text(max_size=200))
def test_whatever_is_no_token_is_refused_without_being_quoted(text: str) -> None:
    secret = f"hunter2 {text}"
    with pytest.raises(SchedulerUnavailable) as raised:
        parse_token(secret, "the file x")
    assert "hunter2" not in str(raised.value)


def test_a_token_says_whom_it_is_for_and_when_it_ends_and_one_that_does_not_is_good_for_ever() -> None:
    token = parse_token(made_token(user="me", lasts=timedelta(hours=1)), "x")
    assert token.user == "me"
    assert token.ends_before(datetime.now(UTC) + timedelta(hours=2))
    assert not token.ends_before(datetime.now(UTC))
    assert not parse_token(made_token(lasts=None), "x").ends_before(datetime.now(UTC) + timedelta(days=9_999))
    assert parse_token("eyJ0.bm90IGpzb24.x", "x").expires_at is None


def test_a_token_is_masked_wherever_it_is_shown() -> None:
    assert made_token() not in repr(parse_token(made_token(), "x"))
