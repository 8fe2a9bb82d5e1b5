"""How Slurm's data parser writes single values, which ``squeue --json`` and slurmrestd share.

Seen on 22.05 (v0.0.38): numbers are plain and a state is one word. Later versions wrap numbers as
``{"set", "infinite", "number"}`` and list a state with its flags. Text that is not set is null or empty.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError


class Part(BaseModel):
    """A part of an answer: what is not used of it is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def number_or_none(value: Any) -> Any:
    """Unwrap a number; unset and infinite are None."""
    if not isinstance(value, dict):
        return value
    return value.get("number") if value.get("set") and not value.get("infinite") else None


def number_or_zero(value: Any) -> Any:
    """Unwrap a number; unset and infinite are 0."""
    number = number_or_none(value)
    return 0 if number is None else number


def _text(value: Any) -> Any:
    return "" if value is None else value


def _words(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Number = Annotated[int, BeforeValidator(number_or_zero)]
NumberOrNone = Annotated[int | None, BeforeValidator(number_or_none)]
Text = Annotated[str, BeforeValidator(_text)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


def first_fault(error: ValidationError) -> str:
    """Say where an answer is not as it should be, and how, in one line that quotes nothing of it."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or "the whole text"
    return f"{where}: {first['msg']}"
