"""What squeue, recorded from a real cluster or hostile, becomes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState, SchedulerUnavailable
from activities.scheduler.squeue_json import read_jobs

DATA = Path(__file__).parents[1] / "data" / "slurm"
RECORDED_AT = datetime(2026, 11, 29, 14, 5, 27, tzinfo=UTC)


@pytest.fixture(scope="module")
def recorded() -> dict[str, JobRecord]:
    """The recorded jobs by their names; of the array, the tasks that still wait together are ``array (rest)``."""
    jobs = read_jobs((DATA / "squeue-22.05.json").read_text(), RECORDED_AT)
    by_name = {job.name: job for job in jobs}
    return by_name | {"array (rest)": next(job for job in jobs if job.array_job_id == job.job_id)}


def one_job(**fields: Any) -> JobRecord:
    """Read an answer with one job, made of the fields that every version has and of `fields`."""
    raw = {"job_id": 7, "job_state": "RUNNING", "submit_time": 1_795_961_000} | fields
    return read_jobs(json.dumps({"errors": [], "jobs": [raw]}), RECORDED_AT)[0]


def test_a_running_job_is_read_whole(recorded: dict[str, JobRecord]) -> None:
    # 'train' occurs twice; the last one could not open its output file.
    jobs = read_jobs((DATA / "squeue-22.05.json").read_text(), RECORDED_AT)
    job = next(job for job in jobs if job.state is JobState.RUNNING and job.name == "train")

    assert job == JobRecord(
        job_id="53",
        job_number="53",
        name="train",
        user="alice",
        partition="main",
        state=JobState.RUNNING,
        reason="None",
        submitted_at=datetime(2026, 11, 29, 14, 6, 44, tzinfo=UTC),
        eligible_at=datetime(2026, 11, 29, 14, 6, 44, tzinfo=UTC),
        started_at=job.started_at,
        nodes=("node01", "node02"),
        node_count=2,
        excluded_nodes=("node08",),
        comment="""{"relight": {"mode": "act"}, "note": "it's \\"x=1\\" ü"}""",
        batch_host="node01",
        stdout="/home/alice/work/logs/train-53.log",
        stderr="/home/alice/work/logs/train-53.log",
        work_dir="/home/alice/work",
    )
    assert job.ended_at is None, "Slurm tells the time limit as the end of a running job"


@pytest.mark.parametrize(
    ("name", "state", "exit_code", "exit_signal"),
    [
        ("fails", JobState.FAILED, 7, 0),
        ("signal", JobState.FAILED, 0, 11),
        ("train", JobState.FAILED, 0, 53),
        ("cancelled", JobState.CANCELLED, 0, 15),
    ],
)
def test_an_ended_job_tells_its_exit_as_scontrol_does(
    recorded: dict[str, JobRecord], name: str, state: JobState, exit_code: int, exit_signal: int
) -> None:
    job = recorded[name]
    assert (job.state, job.exit_code, job.exit_signal) == (state, exit_code, exit_signal)
    assert job.ended_at is not None
    assert job.started_at is not None


def test_a_job_requeued_in_hold_is_told_from_one_that_its_user_holds(recorded: dict[str, JobRecord]) -> None:
    back, held = recorded["back"], recorded["held"]

    assert (back.state, back.hold, back.restart_count) == (JobState.PENDING, Hold.REQUEUED, 1)
    assert back.reason == "job_requeued_in_held_state"
    assert back.started_at is None, "Slurm tells the planned start of a pending job"
    assert (held.state, held.hold, held.required_nodes) == (JobState.PENDING, Hold.USER, ("node03",))


def test_an_administrators_hold_upon_a_requeue_hold_is_the_administrators() -> None:
    job = one_job(
        job_state="PENDING", state_reason="JobHeldAdmin", state_description="job requeued in held state", priority=0
    )
    assert job.hold is Hold.ADMIN


@pytest.mark.parametrize(
    ("state", "reason", "priority", "hold"),
    [
        ("RUNNING", "JobHeldAdmin", 0, Hold.ADMIN),
        ("RUNNING", "JobHeldUser", 0, Hold.USER),
        ("FAILED", "NonZeroExitCode", 0, Hold.USER),
        ("FAILED", "NonZeroExitCode", {"set": True, "infinite": False, "number": 0}, Hold.USER),
        ("RUNNING", "None", 4_294_901_702, Hold.NONE),
        ("FAILED", "NonZeroExitCode", 4_294_901_713, Hold.NONE),
        ("SUSPENDED", "None", 0, Hold.NONE),
    ],
)
def test_a_hold_that_a_person_put_on_a_running_job_is_seen_and_does_not_pass_with_its_end(
    state: str, reason: str, priority: object, hold: Hold
) -> None:
    assert one_job(job_state=state, state_reason=reason, priority=priority).hold is hold


def test_completing_after_a_requeue_is_pending_and_completing_after_the_end_is_unknown(
    recorded: dict[str, JobRecord],
) -> None:
    returning, ending = recorded["returning"], recorded["ending"]

    assert (returning.state, returning.restart_count) == (JobState.PENDING, 1)
    assert (ending.state, ending.restart_count) == (JobState.UNKNOWN, 0)
    assert returning.flags == ending.flags == {JobFlag.COMPLETING}
    assert ending.ended_at is not None
    assert returning.nodes == ()
    assert ending.nodes == ("node02", "node03")


def test_completing_after_a_requeue_without_a_hold_is_known_by_an_end_that_lies_ahead() -> None:
    far = int((RECORDED_AT + timedelta(minutes=1)).timestamp())
    assert one_job(job_state="COMPLETING", end_time=far).state is JobState.PENDING
    assert one_job(job_state="COMPLETING", end_time=far - 59).state is JobState.UNKNOWN


def test_array_tasks_go_by_array_and_task_and_the_rest_by_the_array(recorded: dict[str, JobRecord]) -> None:
    task, rest = recorded["array"], recorded["array (rest)"]
    jobs = read_jobs((DATA / "squeue-22.05.json").read_text(), RECORDED_AT)

    assert {job.job_id for job in jobs if job.array_job_id == "42"} == {"42", "42_1"}
    assert rest.job_id == rest.array_job_id == "42"
    assert rest.state is JobState.PENDING
    assert rest.stdout == rest.stderr == ""
    assert task.array_job_id == "42"
    running = next(job for job in jobs if job.job_id == "42_1")
    assert running.stdout == "/home/alice/work/slurm-42_1.out"


def test_a_het_jobs_components_know_their_leader(recorded: dict[str, JobRecord]) -> None:
    jobs = read_jobs((DATA / "squeue-22.05.json").read_text(), RECORDED_AT)
    assert [(job.job_id, job.het_leader_id) for job in jobs if job.name == "het"] == [("49", ""), ("50", "49")]


def test_a_job_submitted_with_no_requeue_says_so(recorded: dict[str, JobRecord]) -> None:
    assert not recorded["noreq"].requeueable
    assert recorded["fails"].requeueable


def test_stderr_goes_to_its_own_file_where_one_was_named(recorded: dict[str, JobRecord]) -> None:
    assert recorded["fails"].stderr == "/home/alice/work/err-40.txt"
    assert recorded["fails"].stdout == "/home/alice/work/slurm-40.out"


@pytest.mark.parametrize(
    "answer",
    [
        (DATA / "squeue-22.05-controller-dead.json").read_text(),
        "",
        "{}",
        "[]",
        "null",
        '{"errors": []}',
        '{"errors": [], "jobs": [',
        '{"errors": [], "jobs": [{}]}',
        '{"errors": [], "jobs": [{"job_id": "x", "job_state": "RUNNING", "submit_time": 1}]}',
        '{"errors": [], "jobs": [{"job_id": 1, "job_state": "RUNNING", "submit_time": 1, "nodes": "n[1-"}]}',
        '{"errors": [], "jobs": [{"job_id": 1, "job_state": "RUNNING", "submit_time": 1, "nodes": "n[1-999999999]"}]}',
        '{"errors": [], "jobs": [{"job_id": 1, "job_state": "RUNNING", "submit_time": 99999999999999}]}',
        '{"errors": [], "jobs": [{"job_id": -1, "job_state": "RUNNING", "submit_time": 1}]}',
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    ],
)
def test_an_answer_that_says_nothing_is_no_answer(answer: str) -> None:
    with pytest.raises(SchedulerUnavailable, match="squeue"):
        read_jobs(answer, RECORDED_AT)


def test_what_a_later_version_recorded_reads_the_same() -> None:
    jobs = read_jobs((DATA / "squeue-24.11.json").read_text(), RECORDED_AT)
    by_name = {job.name: job for job in jobs}

    train, ending, returning = by_name["train"], by_name["ending"], by_name["returning"]
    assert (train.state, train.nodes, train.excluded_nodes) == (JobState.RUNNING, ("node01", "node02"), ("node08",))
    assert train.stdout == "/home/alice/work/logs/train-2.log"
    assert (by_name["fails"].state, by_name["fails"].exit_code) == (JobState.FAILED, 7)
    assert (by_name["cancelled"].state, by_name["cancelled"].exit_signal) == (JobState.CANCELLED, 15)
    assert (by_name["back"].hold, by_name["back"].restart_count) == (Hold.REQUEUED, 1)
    assert ending.flags == returning.flags == {JobFlag.COMPLETING}
    assert (ending.state, returning.state) == (JobState.CANCELLED, JobState.PENDING)
    assert {job.job_id for job in jobs if job.name == "array"} == {"5", "5_1"}


def test_an_empty_cluster_is_an_answer() -> None:
    assert read_jobs('{"errors": [], "jobs": []}', RECORDED_AT) == ()


def test_wrapped_numbers_and_listed_states_read_as_plain_ones_do() -> None:
    plain = one_job(
        job_state="FAILED",
        restart_cnt=2,
        submit_time=1_795_961_000,
        end_time=1_795_961_100,
        exit_code=768,
        array_job_id=0,
        array_task_id=None,
        node_count=4,
        tasks_per_node=8,
    )
    wrapped = one_job(
        job_state=["FAILED"],
        restart_cnt=wrapped_number(2),
        submit_time=wrapped_number(1_795_961_000),
        end_time=wrapped_number(1_795_961_100),
        exit_code={
            "status": ["ERROR"],
            "return_code": wrapped_number(3),
            "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
        },
        array_job_id=wrapped_number(0),
        array_task_id={"set": False, "infinite": False, "number": 0},
        node_count=wrapped_number(4),
        tasks_per_node=wrapped_number(8),
    )
    assert wrapped == plain
    assert plain.tasks_per_node == 8


def test_a_listed_state_keeps_the_state_beneath_its_flags() -> None:
    job = one_job(job_state=["FAILED", "COMPLETING"])
    assert (job.state, job.flags) == (JobState.FAILED, frozenset({JobFlag.COMPLETING}))


@pytest.mark.parametrize("states", ["STOPPED", ["RUNNING", "STOPPED"]])
def test_a_job_that_a_person_stopped_by_signal_is_suspended_however_it_is_told(states: str | list[str]) -> None:
    assert one_job(job_state=states).state is JobState.SUSPENDED


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CONFIGURING", JobState.RUNNING),
        ("REQUEUE_HOLD", JobState.PENDING),
        ("SPECIAL_EXIT", JobState.PENDING),
        ("STAGE_OUT", JobState.UNKNOWN),
        ("SOMETHING_NEW", JobState.UNKNOWN),
    ],
)
def test_a_word_that_hides_the_state_is_read_with_care(word: str, state: JobState) -> None:
    assert one_job(job_state=word).state is state


def test_a_time_that_is_not_set_is_none() -> None:
    job = one_job(eligible_time={"set": False, "infinite": False, "number": 0}, start_time=0)
    assert job.eligible_at is None
    assert job.started_at is None


def test_fields_of_a_later_version_do_not_disturb() -> None:
    job = one_job(stdout_expanded="/x/7.out", standard_output="/x/%j.out", brand_new={"deep": [1, 2]})
    assert job.stdout == "/x/7.out"


def test_a_job_without_a_batch_script_has_no_output_file() -> None:
    job = one_job(batch_flag=False, current_working_directory="/home/alice")
    assert (job.stdout, job.stderr) == ("", "")


@given(comment=st.text(max_size=200), name=st.text(max_size=50), pattern=st.text(max_size=50))
def test_what_users_write_never_makes_an_answer_unreadable(comment: str, name: str, pattern: str) -> None:
    job = one_job(comment=comment, name=name, standard_output=pattern, current_working_directory="/w")
    assert job.comment == comment
    assert job.stdout == "" or job.stdout.startswith("/")


def wrapped_number(number: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": number}
