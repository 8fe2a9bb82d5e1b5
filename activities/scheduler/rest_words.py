"""What slurmrestd says when something is wrong, as the protocol's errors.

Its JSON has ``errors``, and where a verb met several jobs the outcome for each: under ``results`` (update), ``status``
(cancel, and one list deeper requeue). A verb that failed for the one job that it was for comes with HTTP status 200
then (seen on 24.11 and 26.05). The words are Slurm's own, the same that its commands use, so `slurm_words` tells what
they mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from activities.scheduler.protocol import NotPermitted, SchedulerError, SchedulerUnavailable
from activities.scheduler.rest_client import RestAnswer
from activities.scheduler.slurm_json import Part, Text, first_fault
from activities.scheduler.slurm_words import error_from

ALREADY_OVER = 2021
"""ESLURM_ALREADY_DONE: the job or its steps are ending or have ended."""
NOTHING_FOUND = 9003
"""ESLURM_REST_EMPTY_RESULT: accounting answered, and has none (seen on 22.05; later versions answer with none)."""
_UNSPECIFIED = "unspecified error"


def _flat(value: Any) -> Any:
    """One list of outcomes: a requeue has a list for each job that was named."""
    if not isinstance(value, list):
        return []
    return [outcome for item in value for outcome in (item if isinstance(item, list) else [item])]


class Complaint(Part):
    """One thing that went wrong."""

    error: Text = ""
    error_number: int = 0
    description: Text = ""

    def __str__(self) -> str:
        """Slurm's words, and what slurmrestd adds to them."""
        details = [self.description] if self.description and self.description != self.error else []
        return " ".join([self.error, *(f"({text})" for text in [*details, f"error {self.error_number}"])])


class _KillError(Part):
    string: Text = ""
    code: int = 0


class _Outcome(Part):
    error: str | _KillError | None = None
    error_code: int = 0
    why: Text = ""

    def complaint(self) -> Complaint:
        if isinstance(self.error, _KillError):
            return Complaint(error=self.error.string, error_number=self.error.code)
        return Complaint(error=self.error or "", error_number=self.error_code, description=self.why)


class _Envelope(Part):
    errors: tuple[Complaint, ...] = ()
    results: Annotated[tuple[_Outcome, ...], BeforeValidator(_flat)] = Field(default=())
    status: Annotated[tuple[_Outcome, ...], BeforeValidator(_flat)] = Field(default=())

    def complaints(self) -> Iterator[Complaint]:
        yield from self.errors
        yield from (found for outcome in (*self.results, *self.status) if (found := outcome.complaint()).error_number)


def raise_for(answer: RestAnswer, *, server: str, about: str, changes: bool = False, passing: int = 0) -> None:
    """Raise the protocol's error that `answer` calls for, if any.

    `about`: what was tried, and on which job; `changes`: whether it was more than a read; `passing`: the number of an
    error that is none here.
    """
    complaints = _complaints(answer, server, about, changes=changes)
    telling = [complaint for complaint in complaints if complaint.error_number != passing or not passing]
    if telling:
        raise _error(telling[0], f"{about} through {server}")
    if answer.status >= 400 and not complaints:
        raise SchedulerUnavailable(f"{about}: {server} answered with status {answer.status} and no reason")


def _complaints(answer: RestAnswer, server: str, about: str, *, changes: bool) -> tuple[Complaint, ...]:
    if not answer.is_json:
        raise _not_json(answer, server, about, changes=changes)
    try:
        return tuple(_Envelope.model_validate_json(answer.text).complaints())
    except ValidationError as error:
        raise SchedulerUnavailable(
            f"{about}: {server} answered with {len(answer.text)} characters that cannot be read: {first_fault(error)}"
        ) from error


def _error(complaint: Complaint, about: str) -> SchedulerError:
    words = str(complaint)
    if complaint.error.lower() == _UNSPECIFIED:
        words += "; Slurm says so of a controller that is silent, and 22.05 of a token that it refuses"
    return error_from(words, about=about)


def _not_json(answer: RestAnswer, server: str, about: str, *, changes: bool) -> SchedulerError:
    kind = answer.content_type or "nothing"
    said = " ".join(answer.text.split())[:120]
    what = f"{about}: {server} answered {answer.status} with {kind} instead of JSON"
    if answer.status == 403:
        refusal = NotPermitted if changes else SchedulerUnavailable
        return refusal(f"{what}: what stands before it does not let us through; allow this account there")
    if answer.status == 404:
        return SchedulerUnavailable(f"{what}: it has no such path; was it updated, or is url that of something else?")
    return SchedulerUnavailable(f"{what}: {said!r}; is url that of slurmrestd, and does it run?")
