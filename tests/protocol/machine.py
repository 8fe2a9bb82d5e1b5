"""All that can happen around one order: our calls one at a time with crashes and lost answers, Slurm's own requeues,
and people. What must hold whatever happens is asserted at every call and when the order is settled.

`Protocol` lets nobody act between one of our reads and the call that it led to, so that what is asserted is the truth.
Slurm has no "change it only if": in `WithWindows` others do act in between, and our calls are held to what was read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from activities.scheduler.marker import Marker, read_marker, write_marker
from activities.scheduler.protocol import Hold, JobFlag, JobRecord, JobState, JobUnknown, Refused
from activities.scheduler.requeue import SchedulerActs
from activities.scheduler.simulated_wire import JobSpec
from activities.scheduler.steps import ActOrder
from recovery.model import Action, Disposition, Reconciliation
from tests.protocol.parts import START, an_advice, an_order
from tests.protocol.stepping import Call, SteppedScheduler, Try
from workers.simulator.cluster import Cluster, Timing

NODES = ("node01", "node02", "node03", "node04", "node05")
USERS_OWN, EARLIER_OURS, CULPRIT, NO_NODE = "node01", "node02", "node03", "node99"
JOB_ID = "1"
PERSONS_HOLDS = (Hold.USER, Hold.ADMIN)
SITES_COMMENT = "site note 4711"
EXPIRES_AT = START + timedelta(seconds=150)

EVENTS = (
    *("time passes: 1",) * 3,
    *("time passes: 130",) * 2,
    "time passes: 200",
    *("processes end: 1",) * 3,
    "processes end: 0",
    "its node fails",
    "worker dies",
    "worker dies, its call goes through",
    "a person: cancels",
    "a person: holds",
    "a person: holds as user",
    "a person: releases",
    "a person: requeues",
    "a person: requeues held",
    "a person: clears the comment",
    "a person excludes: node04",
    "a person excludes: node01 node04",
)
"""What may happen beside our calls, as often as it stands here."""
FATES = ("answered", "answered", "answered", "answered", "lost", "answer lost", "doubled")
STARTS = ("runs", "failed", "runs", "failed", "runs", "failed", "completed")
ACTIONS = (*[Action.RESTART_EXCLUDE] * 5, Action.RESTART, Action.STOP)


class Protocol(RuleBasedStateMachine):
    """One job of one node whose attempt 0 failed or runs, maybe with the mark of an older order, and one order."""

    windows = False

    def __init__(self) -> None:
        super().__init__()
        self.now: datetime = START
        self.cluster = Cluster(NODES, Path("/jobs"), Timing(epilog_s=1))
        self.given = False
        self.order: ActOrder = an_order()
        self.loop = asyncio.new_event_loop()
        self.scheduler = SteppedScheduler(self.cluster, lambda: self.now)
        self.acts = SchedulerActs(self.scheduler, settle_s=0, clock=lambda: self.now)
        self.attempt: Try | None = None
        self.tries = 0
        self.settled: Reconciliation | None = None
        self.seen: JobRecord | None = None
        """What this try read last."""
        self.seen_at = self.now
        self.our_requeues = 0
        self.our_hold = False
        """The job stands in a hold that our call set and nobody has lifted or replaced."""
        self.disturbed = False
        """Somebody else did something to the job."""
        self.users_list = {USERS_OWN}
        """What the user wants to be kept off."""

    @initialize(
        ended=st.sampled_from(STARTS),
        requeueable=st.sampled_from([True, True, True, True, True, False]),
        action=st.sampled_from(ACTIONS),
        exclude=st.sets(st.sampled_from([CULPRIT, NO_NODE]), max_size=2),
        withdraw=st.booleans(),
        clear_delay=st.booleans(),
        override=st.booleans(),
        left_behind=st.booleans(),
        spare_s=st.sampled_from([0.0, 0.0, 2.0, 140.0]),
    )
    def order_is_given(
        self,
        ended: str,
        requeueable: bool,
        action: Action,
        exclude: set[str],
        withdraw: bool,
        clear_delay: bool,
        override: bool,
        left_behind: bool,
        spare_s: float,
    ) -> None:
        spec = JobSpec(argv=("train",), exclude=(USERS_OWN, EARLIER_OURS), requeueable=requeueable)
        self.cluster.submit(spec, self.now)
        self.cluster.tick(self.now)
        older = Marker(holds=an_advice().key, since=START)
        comment = write_marker(SITES_COMMENT, older) if left_behind else SITES_COMMENT
        self.cluster.constrain(JOB_ID, exclude=None, admin_comment=comment)
        if ended != "runs":
            self.cluster.attempt_gone(JOB_ID, int(ended == "failed"), 0, self.now)
            self.time_passes(1)
        self.order = an_order(
            advice=an_advice(
                generation=2,
                action=action,
                exclude=tuple(sorted(exclude)) if action is Action.RESTART_EXCLUDE else (),
                expires_at=EXPIRES_AT,
            ),
            withdraw=(EARLIER_OURS,) if withdraw else (),
            clear_delay=clear_delay,
            override_no_requeue=override,
            spare_s=spare_s,
        )
        self.given = True

    # --- we -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.settled is None)
    @rule(fate=st.sampled_from(FATES))
    def we_call(self, fate: str) -> None:
        if self.attempt is None:
            self.tries += 1
            self.attempt = Try(self.loop, self.scheduler, self.acts)
            self.seen = None
            self.attempt.start(self.order, self.tries)
        if self.windows:
            self._serve(fate)
            return
        self._serve("answered")
        while (call := self.scheduler.call) is not None and not call.reads:
            self._serve(fate)
            fate = "answered"

    def our_worker_dies(self, *, in_flight: bool) -> None:
        attempt = self.attempt
        if attempt is None:
            return
        if in_flight and attempt.call:
            self._take_effect(attempt.call)
        attempt.die()
        self.attempt = None

    def _serve(self, fate: str) -> None:
        attempt = self._running_try()
        call = attempt.call
        assert call is not None
        if fate == "lost":
            attempt.no_answer()
        elif fate == "answer lost":
            self._take_effect(call)
            attempt.no_answer()
        else:
            if fate == "doubled":
                self._take_effect(call)
            else:
                self._check(call, self._record())
            self._answer(attempt, call)
        if attempt.call is None:
            self.attempt = None
            if attempt.outcome is not None:
                self._settle(attempt.outcome)

    def _take_effect(self, call: Call) -> None:
        """Carry the call out without answering it."""
        self._check(call, self._record())
        try:
            call.carry_out()
        except (Refused, JobUnknown):
            return
        self._note(call)

    def _answer(self, attempt: Try, call: Call) -> None:
        answer = attempt.answer()
        if isinstance(answer, JobRecord):
            self.seen, self.seen_at = answer, self.now
        if not isinstance(answer, Exception):
            self._note(call)

    def _note(self, call: Call) -> None:
        if call.verb == "requeue":
            self.our_requeues += 1
            # It succeeded: of what was read, this much is known to be different now.
            self.seen = self.seen and self.seen.model_copy(update={"state": JobState.PENDING})
        if call.verb == "requeue_hold":
            self.our_requeues += 1
            record = self._record()
            # Who wiped the mark between our read and this call took the hold over before it was there.
            self.our_hold = not self.windows or (record is not None and self._marked(record))
        if call.verb == "release":
            self.our_hold = False

    def _running_try(self) -> Try:
        assert self.attempt is not None
        return self.attempt

    def _record(self) -> JobRecord | None:
        try:
            return self.cluster.record(JOB_ID)
        except JobUnknown:
            return None

    # --- the others -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.settled is None)
    @rule(event=st.sampled_from(EVENTS))
    def meanwhile(self, event: str) -> None:
        what, _, detail = event.partition(": ")
        self.disturbed |= what in ("its node fails", "a person", "a person excludes")
        if what == "time passes":
            self.time_passes(int(detail))
        elif what == "processes end":
            self.the_attempts_processes_end(int(detail))
        elif what == "its node fails":
            self.a_node_of_the_job_fails()
        elif what == "a person":
            self.a_person_acts(detail)
        elif what == "a person excludes":
            self.a_person_excludes(set(detail.split()))
        else:
            self.our_worker_dies(in_flight=what == "worker dies, its call goes through")

    @precondition(lambda self: self.settled is not None)
    @rule()
    def nothing_is_left_to_do(self) -> None:
        """The order is settled: nobody looks any more."""

    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.cluster.tick(self.now)

    def the_attempts_processes_end(self, exit_code: int) -> None:
        record = self._record()
        if record and (record.state is JobState.RUNNING or JobFlag.COMPLETING in record.flags):
            self.cluster.attempt_gone(JOB_ID, exit_code, 0, self.now)

    def a_node_of_the_job_fails(self) -> None:
        record = self._record()
        for node in record.nodes if record and record.state is JobState.RUNNING else ():
            self.cluster.fail_node(node, self.now)
            self.cluster.restore_node(node)

    def a_person_acts(self, verb: str) -> None:
        acts: dict[str, Callable[[], object]] = {
            "cancels": lambda: self.cluster.cancel(JOB_ID, self.now, by="alice"),
            "holds": lambda: self.cluster.hold(JOB_ID, admin=True),
            "holds as user": lambda: self.cluster.hold(JOB_ID, admin=False),
            "releases": lambda: self.cluster.release(JOB_ID),
            "requeues": lambda: self.cluster.requeue(JOB_ID, self.now, held=False),
            "requeues held": lambda: self.cluster.requeue(JOB_ID, self.now, held=True),
            "clears the comment": lambda: self.cluster.constrain(JOB_ID, exclude=None, admin_comment=SITES_COMMENT),
        }
        try:
            acts[verb]()
        except (Refused, JobUnknown):
            return
        # Also who wipes our mark off a held job takes the hold over.
        self.our_hold = False

    def a_person_excludes(self, nodes: set[str]) -> None:
        try:
            self.cluster.constrain(JOB_ID, exclude=tuple(sorted(nodes)), admin_comment=None)
        except (Refused, JobUnknown):
            return
        self.users_list = nodes

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def at_most_one_requeue_is_ours(self) -> None:
        assert self.our_requeues <= 1, "an order requeued its job twice"

    @invariant()
    def no_hold_of_ours_is_without_its_mark(self) -> None:
        record = self._record()
        if self.our_hold and record and not self.windows:
            assert self._marked(record), "a hold of ours that nobody can tell from a person's"

    @invariant()
    def the_users_own_exclusions_stay(self) -> None:
        record = self._record()
        if record and not self.windows:
            assert self.users_list <= set(record.excluded_nodes), "a node that the user excluded may be used"

    def _check(self, call: Call, truth: JobRecord | None) -> None:
        """May this call be made of this job at all?"""
        basis = self.seen if self.windows else truth
        if call.reads or basis is None:
            return
        assert basis.state is not JobState.CANCELLED, f"{call.verb} of a job that its owner cancelled"
        check = getattr(self, f"_check_{call.verb}", None)
        if check is not None:
            check(call, basis)

    def _check_requeue_hold(self, call: Call, job: JobRecord) -> None:
        self._check_requeue(call, job)
        mark = self._mark(job)
        assert mark is not None, "a job is marked before it is held"
        spared_until = mark.since + timedelta(seconds=self.order.spare_s)
        assert job.state.ended or self.seen_at >= spared_until, "a checkpoint was cut off"

    def _check_requeue(self, call: Call, job: JobRecord) -> None:
        assert self.order.advice.restarts
        assert job.restart_count == 0, "this attempt was not what the advice is for"
        assert job.state in (JobState.RUNNING, JobState.FAILED), f"requeue of a job that is {job.state}"
        assert job.hold is Hold.NONE, "requeue of a job that a person holds"
        assert job.requeueable
        assert self.seen_at <= EXPIRES_AT, "the advice has expired"
        assert call.verb == "requeue_hold" or job.state.ended, "a job that runs is kept off the bad node by a hold"

    def _check_release(self, call: Call, job: JobRecord) -> None:
        assert job.hold is Hold.REQUEUED, f"release of a job held as {job.hold}"

    def _check_cancel(self, call: Call, job: JobRecord) -> None:
        assert self.order.advice.action is Action.STOP
        assert job.restart_count == 0
        assert job.hold is Hold.NONE, "a stop of a job that a person holds"
        assert self.seen_at <= EXPIRES_AT, "the advice has expired"

    def _check_constrain(self, call: Call, job: JobRecord) -> None:
        if call.comment is not None:
            assert SITES_COMMENT in call.comment
        if call.exclude is None:
            return
        assert job.state is JobState.PENDING
        assert job.hold not in PERSONS_HOLDS, "a job that a person holds is theirs"
        kept = set(job.excluded_nodes) - set(self.order.withdraw)
        assert kept <= set(call.exclude), "an exclusion of the user was dropped"
        assert set(call.exclude) <= kept | set(self.order.advice.exclude), "a node that nobody named was excluded"

    def _check_start_now(self, call: Call, job: JobRecord) -> None:
        assert self.order.clear_delay
        assert job.hold is Hold.NONE
        kept_off = {CULPRIT} & set(self.order.advice.exclude)
        assert kept_off <= set(job.excluded_nodes), "a job was let start before it was constrained"
        assert SITES_COMMENT in (call.comment or "")

    def _check_allow_requeue(self, call: Call, job: JobRecord) -> None:
        assert self.order.override_no_requeue
        assert not job.state.ended

    def _settle(self, outcome: Reconciliation) -> None:
        self.settled = outcome
        record = self._record()
        assert not (self.our_hold and record), f"settled as {outcome.reason} and left held by us"
        if self.windows or record is None:
            return
        assert record.state.ended or not self._marked(record), "settled, and our mark stays"
        if outcome.disposition is Disposition.CONVERGED:
            self._check_converged(outcome, record)

    def _check_converged(self, outcome: Reconciliation, record: JobRecord) -> None:
        assert outcome.excluded == record.excluded_nodes
        assert outcome.restart_count == record.restart_count
        if self.order.advice.action is Action.STOP:
            assert record.state.ended
            return
        assert record.restart_count > 0 or record.state is JobState.PENDING
        assert record.state is not JobState.PENDING or record.hold is Hold.NONE
        if record.state is JobState.PENDING and self.order.clear_delay and not self.disturbed:
            assert record.eligible_at is None or record.eligible_at <= self.now, "our own restart waits for nothing"
        missing = set(self.order.advice.exclude) - set(record.excluded_nodes)
        assert all(node in outcome.detail for node in missing), "what could not be excluded is told"

    def _marked(self, record: JobRecord) -> bool:
        return self._mark(record) is not None

    def _mark(self, record: JobRecord) -> Marker | None:
        mark = read_marker(record.admin_comment)
        return mark if isinstance(mark, Marker) and mark.holds == self.order.advice.key else None

    def teardown(self) -> None:
        try:
            if self.given:
                self._left_to_itself()
        finally:
            if self.attempt is not None:
                self.attempt.die()
            self.loop.close()

    def _left_to_itself(self) -> None:
        """Undisturbed, every order comes to its end."""
        for _ in range(50):
            self.the_attempts_processes_end(1)
            self.time_passes(1)
            for _ in range(20):
                if self.settled is None:
                    self.we_call("answered")
        assert self.settled is not None, "the order never came to its end"


class WithWindows(Protocol):
    """The same with others acting between a read and the call that it led to."""

    windows = True


def play(machine: type[Protocol], seed: int) -> None:
    """One run drawn from `seed`, with nothing of hypothesis: many times faster, and nothing is made smaller."""
    draw = random.Random(seed)
    game = machine()
    try:
        game.order_is_given(
            ended=draw.choice(STARTS),
            requeueable=draw.random() < 0.8,
            action=draw.choice(ACTIONS),
            exclude={node for node in (CULPRIT, NO_NODE) if draw.random() < 0.5},
            withdraw=draw.random() < 0.5,
            clear_delay=draw.random() < 0.5,
            override=draw.random() < 0.5,
            left_behind=draw.random() < 0.3,
            spare_s=draw.choice((0.0, 0.0, 2.0, 140.0)),
        )
        for _ in range(30):
            if game.settled is not None:
                break
            if draw.random() < 0.6:
                game.we_call(fate=draw.choice(FATES))
            else:
                game.meanwhile(event=draw.choice(EVENTS))
            game.at_most_one_requeue_is_ours()
            game.no_hold_of_ours_is_without_its_mark()
            game.the_users_own_exclusions_stay()
    finally:
        game.teardown()
