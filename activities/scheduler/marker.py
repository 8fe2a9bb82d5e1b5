"""The mark that relight leaves in a job's AdminComment while it holds the job, or before it cancels one.

Anyone who reads Slurm can tell from it who holds the job and since when; relight itself can tell its own holds from
all others after any crash, and its own cancellations from an owner's. The mark stands before the hold and is replaced
by a short account after the release. What a site keeps in the field stays: other JSON keys beside ours, any other text
under ``was``.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from recovery.model import NodeName, Value

MAX_ADMIN_COMMENT_BYTES = 32_000
"""The longest that is written, and so the longest that has to be read back. Slurm 22.05 takes longer updates (seen);
what counts is that a job's mark can always be set, or the job could never be released."""
KEPT_CHARS = 4_000
"""What is kept of a site's text that leaves no room for the mark."""
_KEY = "relight"


class Marker(Value):
    """Our mark, for as long as relight works on the job."""

    holds: str
    """The key of the advice (job, attempt, generation)."""
    since: datetime
    why: str = Field(default="", max_length=200)


class Account(Value):
    """What replaces the mark: which advice was carried out last, and why."""

    did: str
    """The key of the advice."""
    why: str = Field(default="", max_length=200)
    excluded: tuple[NodeName, ...] = Field(default=(), max_length=64)
    """Nodes on the job's list for the sake of an earlier job of its chain."""


class Replaced(Value):
    """What stands on a job that runs, just before relight cancels it because another one is there in its place."""

    ends_for: str
    """The key of the advice."""
    since: AwareDatetime
    """When it was about to be cancelled."""
    why: str = Field(default="", max_length=200)


class PassedOver(Value):
    """What stands on a job that was submitted anew, held, and must never be released for the sake of that."""

    not_for: str
    """The key of the advice."""
    why: str = Field(default="", max_length=200)


Word = Marker | Account | Replaced | PassedOver
"""What relight says in an AdminComment; one at a time."""
_WORD: TypeAdapter[Word] = TypeAdapter(Word)


def read_marker(admin_comment: str) -> Word | None:
    """Return what relight says there, or None where it says nothing or nothing that is readable as ours."""
    section = _document(admin_comment).get(_KEY)
    try:
        return _WORD.validate_python(section)
    except ValidationError:
        return None


def carries_mark(admin_comment: str, key: str) -> bool:
    """Whether our mark for the advice with this key stands there."""
    word = read_marker(admin_comment)
    return isinstance(word, Marker) and word.holds == key


def write_marker(admin_comment: str, marker: Word) -> str:
    """Return the admin comment with `marker` in it in place of what relight said before, and the site's own content
    kept; no longer than `MAX_ADMIN_COMMENT_BYTES`."""
    mark = marker.model_dump(mode="json", exclude_defaults=True)
    text = _json(_document(admin_comment) | {_KEY: mark})
    if len(text.encode()) > MAX_ADMIN_COMMENT_BYTES:
        return _json({"was": admin_comment[:KEPT_CHARS], _KEY: mark})
    return text


def _document(admin_comment: str) -> dict[str, Any]:
    if not admin_comment:
        return {}
    if len(admin_comment) > MAX_ADMIN_COMMENT_BYTES:
        return {"was": admin_comment}
    try:
        document = json.loads(admin_comment)
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {"was": admin_comment}


def _json(document: dict[str, Any]) -> str:
    """Compact JSON with letters as they are; a lone surrogate, which no encoding takes, becomes its JSON escape."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()
