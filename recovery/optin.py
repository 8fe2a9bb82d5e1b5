"""What a job's ``--comment`` says: whether it opted in, and how.

Three spellings are understood::

    {"relight": {"mode": "act", "hang_after_s": 900}}
    {"nvidia-recovery": {"environment": "prod", "mode": "observe"}}
    {"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}

The comment is a field that tools share: keys of other tools beside ours are theirs and are left alone. A comment that
speaks to us but can't be read makes the job watched in observe mode, with one warning that says what is wrong.
"""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Any, Literal

import re2
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from recovery.detection.progress import ProgressPattern
from recovery.model import Mode, Value

MAX_COMMENT_CHARS = 4_096
"""Longer comments are not parsed: Slurm sites keep them short, and a long one is a mistake or an attack."""

OUR_WORDS = ("relight", "nvidia-recovery", "APS")
"""Top-level keys that opt a job in."""

_OURS = rb"(?:relight|nvidia[-_]recovery|aps)"
_SPEAKS_TO_US = re2.compile(
    rb"""(?i)(?:^|[{,"'])\s*""" + _OURS + rb"""\s*\\?["']?\s*:|^\s*\[\s*["']""" + _OURS + rb"""["']"""
)
"""One of our words where a key stands, or first in a list; whatever its case and with its quotes lost, or escaped by a
wrapper once too often. Prose that mentions it is none."""


def _accept_action(word: object) -> object:
    """NVIDIA's documents use ``action`` for act in places."""
    return "act" if word == "action" else word


RequestedMode = Annotated[Mode, BeforeValidator(_accept_action)]


class OptIn(Value):
    """What a job asks for. It can only be stricter than what the operator allows."""

    mode: Mode = Mode.OBSERVE
    environment: str = ""
    hang_after_s: float | None = None
    """The job's own hang deadline in seconds; None: learned from its intervals."""
    progress_pattern: str | None = None
    """The job's own progress line: an RE2 pattern with a named group ``iteration``."""
    max_restarts: int | None = None
    """A cap on all restarts of this job, below the operator's budgets."""
    chain: bool = False
    """The job is one of a chain that is its own retry: the next one starts when it has ended, and it is never
    requeued."""
    warning: str = ""
    """What could not be understood, in one sentence; empty when all was."""


class _Strict(Value):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Relight(_Strict):
    mode: RequestedMode = Mode.OBSERVE
    environment: str = Field(default="", max_length=64)
    hang_after_s: float | None = Field(default=None, strict=True, ge=1, le=7 * 86_400)
    progress_pattern: str | None = Field(default=None, max_length=300)
    max_restarts: int | None = Field(default=None, strict=True, ge=0, le=1_000)

    @field_validator("progress_pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            ProgressPattern(pattern)
        return pattern


class _NvidiaRecovery(_Strict):
    environment: str = Field(default="", max_length=64)
    mode: RequestedMode = Mode.OBSERVE


class _Aps(_Strict):
    auto_resume_mode: Literal["requeue", "singleton_dependency"]
    max_requeue_times: int | None = Field(default=None, strict=True, ge=0, le=1_000)


def parse_comment(comment: str) -> OptIn | None:
    """Return what `comment` asks for, or None when it does not speak to us. Never raises."""
    if _SPEAKS_TO_US.search(comment.encode("utf-8", "replace")) is None:
        return None
    if len(comment) > MAX_COMMENT_CHARS:
        return _unreadable(f"it is {len(comment)} characters long, more than {MAX_COMMENT_CHARS}")
    try:
        document = json.loads(comment, object_pairs_hook=_keys_once)
    except (ValueError, RecursionError) as error:
        return _unreadable(f"it is not JSON ({error})")
    if not isinstance(document, dict):
        return _unreadable(f"it is a JSON {type(document).__name__}, not an object")
    spoken = [word for word in OUR_WORDS if word in document]
    if not spoken:
        return _misspelt(document)
    return _combine([_parse_section(word, document[word]) for word in spoken])


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values for one key JSON readers take the last: it could undo the stricter one."""
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {_quoted(next(key for key in keys if keys.count(key) > 1))} stands there twice")
    return document


def _misspelt(document: dict[str, Any]) -> OptIn | None:
    """A key close to ours (``Relight``, ``relight ``) is a typing slip to tell; our word inside a value is not ours."""
    ours = {word.lower(): word for word in OUR_WORDS}
    for key in document:
        close = difflib.get_close_matches(key[:40].strip().lower(), list(ours), n=1, cutoff=0.8)
        if close:
            return _unreadable(f'its key {_quoted(key)} is not known; the nearest is "{ours[close[0]]}"')
    return None


def _quoted(key: str) -> str:
    """A key as JSON writes it: no control character and no half of a surrogate pair gets into what is shown."""
    return json.dumps(key[:40])


def _parse_section(word: str, section: Any) -> OptIn:
    if not isinstance(section, dict):
        return _unreadable(f'"{word}" must hold an object, not {type(section).__name__}')
    try:
        if word == "relight":
            return OptIn(**_Relight.model_validate(section).model_dump())
        if word == "nvidia-recovery":
            return OptIn(**_NvidiaRecovery.model_validate(section).model_dump())
        return _from_aps(_Aps.model_validate(section))
    except ValidationError as error:
        return _unreadable(_first_problem(word, error))


def _from_aps(aps: _Aps) -> OptIn:
    """The older form asks for requeues without naming a mode: it opts in to acting."""
    chain = aps.auto_resume_mode == "singleton_dependency"
    return OptIn(mode=Mode.ACT, max_restarts=None if chain else aps.max_requeue_times, chain=chain)


def _first_problem(word: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = _quoted(".".join(str(part) for part in (word, *first["loc"])))
    if first["type"] != "extra_forbidden":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    sections: dict[str, type[_Strict]] = {"relight": _Relight, "nvidia-recovery": _NvidiaRecovery, "APS": _Aps}
    known = sections[word].model_fields
    near = difflib.get_close_matches(str(first["loc"][-1])[:40], list(known), n=1, cutoff=0)
    return f'{where} is not known; the nearest key is "{near[0]}"'


def _combine(parts: list[OptIn]) -> OptIn:
    """Several of our keys in one comment: the strictest mode and the smallest cap win."""
    if len(parts) == 1:
        return parts[0]
    warning = next((part.warning for part in parts if part.warning), "")
    caps = [part.max_restarts for part in parts if part.max_restarts is not None]
    first = parts[0]
    return first.model_copy(
        update={
            "mode": Mode.ACT if all(part.mode is Mode.ACT for part in parts) else Mode.OBSERVE,
            "environment": next((part.environment for part in parts if part.environment), ""),
            "max_restarts": min(caps) if caps else None,
            "chain": any(part.chain for part in parts),
            "warning": warning,
        }
    )


def _unreadable(problem: str) -> OptIn:
    return OptIn(warning=f"the job's comment can't be used: {problem}; the job is watched in observe mode")
