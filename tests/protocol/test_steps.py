"""Each row of the action protocol: what a record calls for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.marker import Account, Marker, write_marker
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState
from activities.scheduler.steps import ActOrder, Sent, Step, is_ours, next_step
from recovery.model import Action, Disposition, Reconciliation
from tests.protocol.parts import LIFETIME, START, a_record, an_advice, an_order

ORDER = an_order()
OURS = write_marker("", Marker(holds=ORDER.advice.key, since=START))
ANOTHERS = write_marker("", Marker(holds="recovery/beta/1@0#0.7", since=START))
DONE = write_marker("", Account(did=ORDER.advice.key))
NOW = START + timedelta(seconds=30)
LATE = START + LIFETIME + timedelta(seconds=1)
STOP = an_order(advice=an_advice(action=Action.STOP, exclude=()))


def pending(**changes: Any) -> JobRecord:
    """After a requeue: one restart more, submitted anew, node03 excluded beside the user's node01."""
    standard: dict[str, Any] = {
        "restart_count": 1,
        "submitted_at": START + timedelta(seconds=20),
        "excluded_nodes": ("node01", "node03"),
        "eligible_at": START + timedelta(seconds=20),
    }
    return a_record(JobState.PENDING, **(standard | changes))


def held(**changes: Any) -> JobRecord:
    return pending(hold=Hold.REQUEUED, reason="job_requeued_in_held_state", **changes)


def step(record: JobRecord, order: ActOrder = ORDER, *, sent: Sent = Sent.NOTHING, late: bool = False) -> Any:
    return next_step(record, order, LATE if late else NOW, sent=sent)


def outcome(
    record: JobRecord, order: ActOrder = ORDER, *, sent: Sent = Sent.NOTHING, late: bool = False
) -> Reconciliation:
    reached = step(record, order, sent=sent, late=late)
    assert isinstance(reached, Reconciliation), reached
    return reached


# --- before the requeue -----------------------------------------------------------------------------------------------


def test_a_running_job_is_marked_before_anything_else() -> None:
    assert step(a_record()) is Step.MARK


def test_a_marked_running_job_is_requeued_in_hold() -> None:
    assert step(a_record(admin_comment=OURS)) is Step.REQUEUE_HOLD


@pytest.mark.parametrize("comment", [ANOTHERS, DONE, "site text", '{"relight": 1}'])
def test_no_other_comment_passes_for_our_mark(comment: str) -> None:
    assert step(a_record(admin_comment=comment)) is Step.MARK


@pytest.mark.parametrize(
    "state",
    [
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.OUT_OF_MEMORY,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
    ],
)
def test_a_failed_job_takes_no_mark_and_is_requeued_without_a_hold(state: JobState) -> None:
    assert step(a_record(state)) is Step.REQUEUE


def test_an_attempt_that_ended_once_it_was_marked_is_requeued_in_hold() -> None:
    assert step(a_record(JobState.FAILED, admin_comment=OURS)) is Step.REQUEUE_HOLD


@pytest.mark.parametrize(
    ("state", "seconds", "expected"),
    [
        (JobState.RUNNING, 0, Step.WAIT),
        (JobState.RUNNING, 59, Step.WAIT),
        (JobState.RUNNING, 60, Step.REQUEUE_HOLD),
        (JobState.FAILED, 1, Step.REQUEUE_HOLD),
        (JobState.RUNNING, -4, Step.WAIT),
        (JobState.RUNNING, -3_600, Step.REQUEUE_HOLD),
    ],
)
def test_an_attempt_that_writes_a_checkpoint_is_spared_for_a_while_from_its_mark_on(
    state: JobState, seconds: int, expected: Step
) -> None:
    order = an_order(spare_s=60.0)
    marked = write_marker("", Marker(holds=order.advice.key, since=NOW - timedelta(seconds=seconds)))

    assert step(a_record(state), order) is not Step.WAIT
    assert step(a_record(state, admin_comment=marked), order) is expected


@pytest.mark.parametrize("sent", Sent)
@pytest.mark.parametrize("flags", [(), (JobFlag.COMPLETING,)])
def test_a_cancelled_job_is_never_touched(sent: Sent, flags: tuple[JobFlag, ...]) -> None:
    for count in (0, 1):
        seen = outcome(a_record(JobState.CANCELLED, flags=frozenset(flags), restart_count=count), sent=sent)
        assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "owner_cancelled")


def test_a_completed_job_is_left_completed() -> None:
    assert outcome(a_record(JobState.COMPLETED)).reason == "completed"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED])
@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN])
def test_a_job_that_a_person_holds_while_it_runs_or_after_it_failed_is_theirs(state: JobState, hold: Hold) -> None:
    seen = outcome(a_record(state, hold=hold))

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "person_intervened")
    assert hold.value in seen.detail


def test_a_hold_that_comes_between_mark_and_requeue_stops_us_and_the_mark_goes() -> None:
    assert step(a_record(hold=Hold.ADMIN, admin_comment=OURS)) is Step.UNMARK
    assert outcome(a_record(hold=Hold.ADMIN, admin_comment=DONE)).reason == "person_intervened"


def test_a_suspended_job_is_left_to_whoever_suspended_it() -> None:
    assert outcome(a_record(JobState.SUSPENDED)).reason == "person_intervened"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED])
def test_advice_that_expired_before_the_requeue_is_not_carried_out(state: JobState) -> None:
    assert outcome(a_record(state), late=True).reason == "advice_expired"


def test_a_no_requeue_job_is_given_up_unless_the_operator_overrides_it() -> None:
    assert outcome(a_record(requeueable=False)).reason == "not_requeueable"
    assert step(a_record(requeueable=False), an_order(override_no_requeue=True)) is Step.ALLOW_REQUEUE


def test_an_ended_no_requeue_job_is_given_up_whatever_the_operator_wants() -> None:
    seen = outcome(a_record(JobState.FAILED, requeueable=False), an_order(override_no_requeue=True))

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "not_requeueable")


@pytest.mark.parametrize(
    "record",
    [
        a_record(flags=frozenset({JobFlag.COMPLETING})),
        a_record(JobState.FAILED, flags=frozenset({JobFlag.COMPLETING})),
        a_record(JobState.UNKNOWN),
        held(flags=frozenset({JobFlag.COMPLETING})),
    ],
)
def test_while_slurm_ends_an_attempt_or_says_nothing_known_we_wait(record: JobRecord) -> None:
    assert step(record, sent=Sent.HOLD) is Step.WAIT
    assert step(record, sent=Sent.HOLD, late=True) is Step.WAIT


# --- whose job id -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        a_record(submitted_at=START + timedelta(days=40)),
        a_record(JobState.FAILED, submitted_at=START - timedelta(days=40)),
        a_record(restart_count=1, submitted_at=START - timedelta(seconds=1)),
    ],
)
def test_a_job_id_that_slurm_gave_to_another_job_is_left_alone(record: JobRecord) -> None:
    for order in (ORDER, STOP):
        seen = outcome(record, order)
        assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "job_gone")


def test_an_attempt_before_the_advised_one_is_another_job() -> None:
    order = an_order(advice=an_advice(attempt=2))
    assert outcome(a_record(restart_count=1), order).reason == "job_gone"


# --- after the requeue ------------------------------------------------------------------------------------------------


def test_our_marked_hold_is_constrained_then_released() -> None:
    assert step(held(admin_comment=OURS, excluded_nodes=("node01",))) is Step.CONSTRAIN
    assert step(held(admin_comment=OURS)) is Step.RELEASE


def test_a_hold_of_ours_whose_mark_a_sites_script_wiped_is_marked_again_by_the_try_that_set_it() -> None:
    assert step(held(), sent=Sent.HOLD) is Step.CONSTRAIN
    assert outcome(held(restart_count=2), sent=Sent.HOLD).reason == "person_intervened"


@pytest.mark.parametrize("sent", [Sent.NOTHING, Sent.PERHAPS])
def test_any_other_unmarked_hold_is_a_persons(sent: Sent) -> None:
    seen = outcome(held(), sent=sent)

    assert (seen.disposition, seen.reason) == (Disposition.ABANDONED, "person_intervened")


@pytest.mark.parametrize("sent", Sent)
def test_a_hold_that_another_order_marked_is_not_ours(sent: Sent) -> None:
    assert outcome(held(admin_comment=ANOTHERS), sent=sent).reason == "person_intervened"


def test_a_requeue_that_was_cut_off_is_marked_and_constrained_while_the_delay_lasts() -> None:
    waits = pending(excluded_nodes=("node01",), eligible_at=START + timedelta(seconds=141))
    unlisted = waits.model_copy(update={"excluded_nodes": ("node01", "node03")})

    assert step(waits, sent=Sent.PERHAPS) is Step.CONSTRAIN
    assert step(unlisted, sent=Sent.PERHAPS) is Step.CONSTRAIN, "the mark is missing"
    assert step(unlisted.model_copy(update={"admin_comment": OURS}), sent=Sent.PERHAPS) is Step.START_NOW
    assert outcome(unlisted.model_copy(update={"admin_comment": DONE})).reason == "desired_state_observed"


def test_a_requeue_that_was_cut_off_for_longer_than_the_delay_has_started_and_that_is_told() -> None:
    seen = outcome(a_record(restart_count=1), sent=Sent.PERHAPS)

    assert (seen.disposition, seen.reason) == (Disposition.CONVERGED, "already_satisfied")
    assert seen.detail == "the next attempt started before node03 could be excluded"


@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN, Hold.LAUNCH_FAILED])
@pytest.mark.parametrize("comment", ["", DONE])
def test_a_hold_that_is_no_requeuehold_is_never_released(hold: Hold, comment: str) -> None:
    assert outcome(pending(hold=hold, admin_comment=comment), sent=Sent.HOLD).reason == "person_intervened"


@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN])
def test_a_persons_hold_upon_ours_stays_and_only_our_mark_goes(hold: Hold) -> None:
    assert step(pending(hold=hold, admin_comment=OURS), sent=Sent.HOLD) is Step.UNMARK


def test_a_job_that_we_hold_is_released_however_late_it_is() -> None:
    assert step(held(admin_comment=OURS), late=True) is Step.RELEASE
    assert step(held(), sent=Sent.HOLD, late=True) is Step.CONSTRAIN


def test_the_delay_is_cleared_once_the_hold_is_gone() -> None:
    delayed = pending(admin_comment=OURS, eligible_at=START + timedelta(seconds=141))

    assert step(delayed) is Step.START_NOW
    assert step(delayed, an_order(clear_delay=False)) is Step.UNMARK


def test_the_delay_of_a_job_that_we_did_not_requeue_is_left() -> None:
    assert outcome(pending(eligible_at=START + timedelta(seconds=141))).reason == "already_satisfied"


def test_the_mark_goes_last_and_then_it_is_done() -> None:
    assert step(pending(admin_comment=OURS)) is Step.UNMARK
    seen = outcome(pending(admin_comment=DONE))
    assert (seen.disposition, seen.reason, seen.restart_count) == (Disposition.CONVERGED, "desired_state_observed", 1)
    assert seen.excluded == ("node01", "node03")


def test_an_attempt_that_ended_before_the_mark_was_cleared_is_still_our_restart() -> None:
    assert outcome(
        a_record(JobState.FAILED, restart_count=1, admin_comment=OURS, excluded_nodes=("node03",))
    ).reason == ("desired_state_observed")


def test_a_restart_that_slurm_made_by_itself_still_gets_its_exclusions() -> None:
    assert step(pending(excluded_nodes=("node01",))) is Step.CONSTRAIN
    assert outcome(pending()).reason == "already_satisfied"


def test_an_attempt_that_began_before_the_exclusion_is_told_so() -> None:
    seen = outcome(a_record(restart_count=1))

    assert (seen.disposition, seen.reason) == (Disposition.CONVERGED, "already_satisfied")
    assert seen.detail == "the next attempt started before node03 could be excluded"
    assert seen.excluded == ("node01",)


def test_a_node_that_slurm_refuses_to_exclude_does_not_keep_the_job_held() -> None:
    order = an_order(advice=an_advice(exclude=("node03", "node99")), unable=("node99",))

    assert step(held(admin_comment=OURS), order) is Step.RELEASE
    assert outcome(pending(admin_comment=DONE), order).detail == "the scheduler refused to exclude node99"


# --- exclusions -------------------------------------------------------------------------------------------------------

nodes = st.lists(st.sampled_from([f"node{number:02}" for number in range(1, 9)]), unique=True).map(tuple)


@given(current=nodes, exclude=nodes, withdraw=nodes, required=nodes)
def test_the_list_is_what_stands_there_less_what_we_withdraw_and_what_we_exclude(
    current: tuple[str, ...], exclude: tuple[str, ...], withdraw: tuple[str, ...], required: tuple[str, ...]
) -> None:
    order = an_order(advice=an_advice(exclude=exclude), withdraw=withdraw)
    wanted = order.wanted_exclusions(current, required)

    assert set(exclude) - set(required) <= set(wanted) <= set(current) | set(exclude)
    assert set(current) - set(withdraw) <= set(wanted), "the user's own stay, whatever else the user asks for"
    assert not set(withdraw) & set(wanted) - set(exclude)
    assert not set(required) & set(wanted) - set(current)
    assert order.wanted_exclusions(wanted, required) == wanted, "to repeat it changes nothing"


def test_a_node_that_the_job_asks_for_by_name_is_not_excluded_and_that_is_told() -> None:
    asks = {"excluded_nodes": ("node01",), "required_nodes": ("node03", "node04")}

    assert step(held(admin_comment=OURS, **asks)) is Step.RELEASE
    assert outcome(pending(admin_comment=DONE, **asks)).detail == "the job asks for node03 by name"


# --- stop -------------------------------------------------------------------------------------------------------------


def test_a_stop_cancels_the_attempt_that_runs_or_waits() -> None:
    assert step(a_record(), STOP) is Step.CANCEL
    assert step(a_record(JobState.PENDING), STOP) is Step.CANCEL


@pytest.mark.parametrize("state", [state for state in JobState if state.ended])
def test_a_stop_is_done_once_the_job_has_ended(state: JobState) -> None:
    assert outcome(a_record(state), STOP).reason == "already_satisfied"
    assert outcome(a_record(state), STOP, sent=Sent.HOLD).reason == "desired_state_observed"


def test_a_stop_is_for_its_own_attempt_only() -> None:
    assert outcome(a_record(restart_count=1), STOP).reason == "superseded"


def test_a_stop_waits_while_it_is_unknown_how_the_job_stands() -> None:
    assert step(a_record(JobState.UNKNOWN), STOP) is Step.WAIT
    assert step(a_record(flags=frozenset({JobFlag.COMPLETING})), STOP) is Step.WAIT


def test_a_stop_that_comes_too_late_is_not_carried_out() -> None:
    assert outcome(a_record(), STOP, late=True).reason == "advice_expired"


def test_policy_does_not_stop_a_job_that_a_person_holds_but_a_person_may() -> None:
    persons = an_order(advice=an_advice(action=Action.STOP, exclude=(), by="alice"))

    assert outcome(a_record(hold=Hold.USER), STOP).reason == "person_intervened"
    assert step(a_record(hold=Hold.USER), persons) is Step.CANCEL


# --- in general -------------------------------------------------------------------------------------------------------

records = st.builds(
    JobRecord,
    job_id=st.just("1"),
    state=st.sampled_from(JobState),
    flags=st.frozensets(st.sampled_from([JobFlag.COMPLETING, JobFlag.REQUEUED]), max_size=1),
    hold=st.sampled_from(Hold),
    restart_count=st.integers(0, 3),
    submitted_at=st.sampled_from([START, START + timedelta(seconds=20), START - timedelta(days=1)]),
    eligible_at=st.sampled_from([None, START, START + timedelta(seconds=141)]),
    excluded_nodes=nodes,
    admin_comment=st.sampled_from(["", OURS, ANOTHERS, DONE, "site text"]),
    requeueable=st.booleans(),
)
orders = st.builds(
    an_order,
    advice=st.builds(
        an_advice,
        action=st.sampled_from([Action.RESTART, Action.RESTART_EXCLUDE, Action.STOP]),
        exclude=nodes,
        attempt=st.integers(0, 2),
    ),
    withdraw=nodes,
    clear_delay=st.booleans(),
    override_no_requeue=st.booleans(),
    spare_s=st.sampled_from([0.0, 25.0, 60.0]),
)


@given(record=records, order=orders, sent=st.sampled_from(Sent), late=st.booleans())
def test_every_record_calls_for_something_and_no_call_breaks_a_rule(
    record: JobRecord, order: ActOrder, sent: Sent, late: bool
) -> None:
    reached = step(record, order, sent=sent, late=late)

    if reached is Step.REQUEUE_HOLD:
        assert is_ours(record, order), "no hold without a mark"
    if reached is Step.REQUEUE:
        assert record.state.ended, "what runs is held"
    if reached in (Step.REQUEUE_HOLD, Step.REQUEUE, Step.MARK, Step.ALLOW_REQUEUE):
        assert record.restart_count == order.advice.attempt
        assert record.hold is Hold.NONE
        assert record.state not in (JobState.CANCELLED, JobState.COMPLETED, JobState.PENDING, JobState.UNKNOWN)
        assert not late
    if reached is Step.RELEASE:
        assert record.hold is Hold.REQUEUED
    if reached is Step.CONSTRAIN:
        assert record.state is JobState.PENDING
        assert record.hold in (Hold.NONE, Hold.REQUEUED)
    if isinstance(reached, Reconciliation) and reached.disposition is Disposition.CONVERGED and order.advice.restarts:
        assert record.state is not JobState.PENDING or record.hold is Hold.NONE
