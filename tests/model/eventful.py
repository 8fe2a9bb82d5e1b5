"""What happens around an order to submit a job anew: workers die, jobs come to their ends, people have their word."""

from __future__ import annotations

import asyncio
from typing import Any

from activities.scheduler.protocol import Hold, JobState
from tests.model.busy import Busy
from tests.resubmission.world import OLD, World

STEPS = 30
OF_THE_JOBS = (
    "its owner cancels the old job",
    "the old job completes",
    "the old job fails",
    "the old job is requeued",
    "its owner cancels the new job",
    "an administrator holds the new job",
    "the new job ends",
)
EVENTS = (
    *("nothing",) * 100,
    *("time passes",) * 8,
    *("the worker dies",) * 8,
    *OF_THE_JOBS,
)


class Eventful(World):
    """The world in which that happens, and what only it knows of it."""

    scheduler: Busy

    def __init__(self, seed: int) -> None:
        super().__init__(seed, running=seed % 2 == 1, scheduler=Busy)
        self.worker_is_gone = False
        self.calls_left: int | None = None
        """Of the worker, until it is gone for good; None: it has not sent the submission that it dies after."""
        self.dies_after_submission = self.draw.choice((1, 1, 1, 1, 2, 2, STEPS))
        self.quiet = False
        self.sent: set[str] = set()
        """The verbs that were called."""
        self.looking = self.trying = self.undecided = False
        """The watchdog looks, a worker's act tries, and neither has read what it is about to act upon."""
        self.kept_by_a_person: set[str] = set()
        """New jobs that somebody cancelled or holds."""
        self.old_had_a_word = False
        """A person did something to the old job."""

    def _meanwhile(self, verb: str, task: asyncio.Future[Any] | None) -> None:
        self.sent.add(verb)
        self._count(verb, task)
        # Slurm has no "change it only if": nobody hears a word that comes between a read and the call that it led to.
        self.undecided = verb in ("", "jobs", "job") and not (self.looking and (self.trying or not verb))
        if not self.quiet:
            self._happens(self.draw.choice(EVENTS), task)
        if self.quiet or self.draw.random() < 0.5:
            self._processes_end()

    def _count(self, verb: str, task: asyncio.Future[Any] | None) -> None:
        """Let the worker be gone soon after one of its submissions: there it matters."""
        if verb == "submit":
            self.dies_after_submission -= 1
            if not self.dies_after_submission:
                self.calls_left = self.draw.choice((0, 0, 1, 2, 4, 7, 12))
        if self.calls_left is None or task is None or self.looking:
            return
        self.calls_left -= 1
        if self.calls_left < 0:
            self.worker_is_gone = True
            task.cancel()

    def _processes_end(self) -> None:
        old = self.job(OLD)
        if old is not None and old.flags:
            self.cluster.attempt_gone(OLD, 0, 15, self.scheduler.now)

    def _happens(self, event: str, task: asyncio.Future[Any] | None) -> None:
        match event:
            case "the worker dies" if task is not None:
                task.cancel()
            case "time passes":
                self.scheduler.pass_time(self.draw.choice((30, 30, 90)))
            case _ if self.old_state is JobState.RUNNING:
                self._happens_to_the_old_job(event)
            case _:
                self._happens_to_the_new_job(event)

    def _happens_to_the_old_job(self, event: str) -> None:
        now = self.scheduler.now
        match event:
            case "its owner cancels the old job":
                self._word_on_the_old_job("" if self.looks_like_ours() else "cancelled")
                self.cluster.cancel(OLD, now, by="alice")
            case "the old job completes":
                self._word_on_the_old_job("completed")
                self.cluster.attempt_gone(OLD, 0, 0, now)
            case "the old job fails":
                self.cluster.attempt_gone(OLD, 1, 0, now)
            case "the old job is requeued" if self.undecided and "cancel" not in self.sent:
                self._word_on_the_old_job("requeued")
                self.cluster.allow_requeue(OLD)
                self.cluster.requeue(OLD, now, held=False)

    def _happens_to_the_new_job(self, event: str) -> None:
        now = self.scheduler.now
        waiting = [job for job in self.submitted if job.state is JobState.PENDING and job.hold is Hold.USER]
        match event:
            case "its owner cancels the new job" if waiting and self.draw.random() < 0.3:
                self.kept_by_a_person.add(waiting[0].job_id)
                self.cluster.cancel(waiting[0].job_id, now, by="alice")
            case "an administrator holds the new job" if waiting and self.undecided and "release" not in self.sent:
                self.kept_by_a_person.add(waiting[0].job_id)
                self.cluster.hold(waiting[0].job_id, admin=True)
            case "the new job ends":
                for job in self.submitted:
                    if job.state is JobState.RUNNING:
                        self.cluster.attempt_gone(job.job_id, self.draw.choice((0, 1)), 0, now)

    def _word_on_the_old_job(self, what: str) -> None:
        self.old_had_a_word = True
        self.disturbed = self.disturbed or what
