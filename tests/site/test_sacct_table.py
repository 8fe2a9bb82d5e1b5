"""What accounting tells of a job's attempts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.protocol import JobFlag, JobState
from activities.scheduler.sacct_table import COLUMNS, DELIMITER, Accounts, read_attempts
from activities.scheduler.tables import TableError
from tests.site.answers import answer

SUBMITTED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def row(**values: str) -> str:
    told = {"JobID": "7", "JobIDRaw": "7", "State": "COMPLETED", "Submit": "1772366400", "ExitCode": "0:0"} | values
    return DELIMITER.join(told.get(column, "") for column in COLUMNS)


def read(*rows: str) -> Accounts:
    return read_attempts("\n".join(rows) + "\n", UTC)


def test_every_attempt_of_a_requeued_job_is_told_the_oldest_first() -> None:
    later = row(State="FAILED", Submit="1772370000", ExitCode="3:0", Start="1772370121", End="1772373600")
    accounts = read(later, row(State="NODE_FAIL", NodeList="node[01-02]", NNodes="2", Start="1772366400"))

    first, second = accounts.attempts
    assert (first.state, first.nodes, first.node_count) == (JobState.NODE_FAIL, ("node01", "node02"), 2)
    assert (second.state, second.exit_code) == (JobState.FAILED, 3)
    assert first.submitted_at == SUBMITTED
    assert second.ended_at == SUBMITTED + timedelta(hours=2)


def test_a_requeued_attempt_is_not_a_failed_one() -> None:
    (attempt,) = read(row(State="REQUEUED")).attempts

    assert attempt.state is JobState.UNKNOWN
    assert attempt.flags == {JobFlag.REQUEUED}


@pytest.mark.parametrize("word", ["A_STATE_TO_COME", "", "RUNNING AWAY"])
def test_a_state_that_nobody_knows_is_kept_and_is_not_failed(word: str) -> None:
    (attempt,) = read(row(State=word)).attempts

    assert attempt.state is JobState.UNKNOWN
    assert not attempt.state.ended
    assert attempt.state_words == word


def test_who_cancelled_a_job_is_told() -> None:
    (attempt,) = read(row(State="CANCELLED by 1185300516")).attempts

    assert (attempt.state, attempt.cancelled_by) == (JobState.CANCELLED, "1185300516")


@pytest.mark.parametrize("nothing", ["", "Unknown", "None", "N/A", "(null)"])
def test_words_for_nothing_are_no_values(nothing: str) -> None:
    told = row(Start=nothing, End=nothing, Eligible=nothing, Reason=nothing, NodeList="None assigned", State="PENDING")
    (attempt,) = read(told).attempts

    assert (attempt.started_at, attempt.ended_at, attempt.eligible_at) == (None, None, None)
    assert (attempt.reason, attempt.nodes) == ("", ())


@pytest.mark.parametrize(
    ("job_id", "raw", "expected"),
    [
        ("39125549", "39125549", "39125549"),
        ("8012944_24093", "8084960", "8012944_24093"),
        ("42271120_[7-8%1]", "42271120", "42271120"),
        ("123+1", "124", "124"),
    ],
)
def test_a_job_is_named_as_slurms_commands_take_it(job_id: str, raw: str, expected: str) -> None:
    (attempt,) = read(row(JobID=job_id, JobIDRaw=raw)).attempts

    assert attempt.job_id == expected


def test_steps_are_no_attempts() -> None:
    accounts = read(row(JobID="7.batch", JobIDRaw="7.batch"), row(JobID="7_1.extern"), row(JobID="7+1.0"))

    assert accounts == Accounts((), 0)


def test_times_without_an_offset_are_those_of_the_host_where_sacct_ran() -> None:
    tokyo = timezone(timedelta(hours=9))
    (attempt,) = read_attempts(row(Submit="2026-03-01T21:00:00") + "\n", tokyo).attempts

    assert attempt.submitted_at == SUBMITTED


def test_a_comment_over_several_lines_is_kept_as_it_is() -> None:
    (attempt,) = read(row(Comment='{"relight":\n{"mode": "act"}}|x')).attempts

    assert attempt.comment == '{"relight":\n{"mode": "act"}}|x'


def test_a_row_that_makes_no_sense_is_counted_and_never_guessed() -> None:
    accounts = read(
        row(Submit="yesterday"), row(Submit=""), row(NodeList="node[1-"), row(ExitCode="x"), row(NNodes="-1")
    )

    assert accounts == Accounts((), 5)


@pytest.mark.parametrize(
    ("name", "delimiter", "expected"),
    [
        ("sacct-fake-line-break.txt", "|#", [("201729", "FAILED"), ("201844", "REQUEUED")]),
        ("sacct-one-multiline.txt", "|#", [("201729", "FAILED"), ("201844", "REQUEUED")]),
        ("sacct-invalid-utf8.txt", "|", [("3557891", "FAILED"), ("3557892", "TIMEOUT")]),
        ("sacct-steps.txt", "|", []),
        ("sacct-running.txt", "|#", []),
    ],
)
def test_the_accounts_of_other_sites_are_read(name: str, delimiter: str, expected: list[tuple[str, str]]) -> None:
    accounts = read_attempts(answer(name), UTC, delimiter=delimiter, columns=())

    assert [(attempt.job_id, attempt.state_words) for attempt in accounts.attempts] == expected
    assert accounts.unreadable == 0


def test_a_table_that_does_not_tell_when_a_job_was_submitted_tells_of_no_attempt() -> None:
    accounts = read_attempts(answer("sacct-midnight-edge-case-small.txt"), UTC, delimiter="|", columns=())

    assert accounts == Accounts((), 3)


def test_an_empty_answer_is_a_job_that_accounting_does_not_know() -> None:
    assert read_attempts("", UTC) == Accounts((), 0)


@given(st.binary(max_size=400) | st.text(alphabet="7|\n\x1fRUNING:[]-_", max_size=400).map(str.encode))
def test_any_bytes_are_accounts_or_no_table(text: bytes) -> None:
    for columns in (COLUMNS, ()):
        try:
            read_attempts(text.decode(errors="replace"), UTC, columns=columns)
        except TableError:
            assert not columns
