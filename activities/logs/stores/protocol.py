"""What a log store answers with, whichever it is. How it fails: `activities.stores.errors`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from activities.logs.stores.settings import LabelNames

Nanoseconds = int
"""Since the epoch."""
MAX_TEXT_BYTES = 1 << 20
"""Kept of one entry; what is longer is cut."""


class Entry(NamedTuple):
    """One entry of a store, with what its labels say."""

    job_id: str
    ns: Nanoseconds
    text: str
    host: str = ""
    rank: int | None = None
    file: str = ""
    stream: str = ""

    @property
    def digest(self) -> str:
        """Knows the entry again when it is delivered twice."""
        words = f"{self.ns}\0{self.host}\0{self.rank}\0{self.file}\0{self.stream}\0{self.text}"
        return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Window(NamedTuple):
    """A stretch of time, its end excluded."""

    start_ns: Nanoseconds
    end_ns: Nanoseconds


class Sample(NamedTuple):
    """One entry with all its labels, whatever they are called."""

    ns: Nanoseconds
    text: str
    labels: dict[str, str]


class Pushed(NamedTuple):
    """What a store pushed at once."""

    entries: list[Entry]
    left_out: int = 0
    """How many entries the store says that it left out because we were too slow."""


class LogStore(Protocol):
    """One kind of store. All methods raise `StoreError`."""

    @property
    def most_entries(self) -> int:
        """How many entries to ask for at once, to begin with."""
        ...

    async def page(
        self, job_ids: Sequence[str], window: Window, limit: int, *, newest_first: bool = False
    ) -> list[Entry]:
        """Return the first `limit` entries of these jobs in `window`, in order of time; or the last, newest first."""
        ...

    def push(self, job_ids: Sequence[str], since_ns: Nanoseconds) -> AsyncGenerator[Pushed, None]:
        """Yield entries of these jobs as they arrive, beginning with those since `since_ns`."""
        ...

    async def newest_ns(self, window: Window) -> Nanoseconds | None:
        """Return the time of the newest line in `window` of those that never stop; None when there is none."""
        ...

    async def label_names(self, window: Window) -> tuple[str, ...]:
        """Return the names of the labels that lines in `window` have."""
        ...

    async def close(self) -> None:
        """Give up the connections."""
        ...


class SurveyedStore(LogStore, Protocol):
    """What a person who sets up a store asks of it beside what a reader does. All methods raise `StoreError`."""

    @property
    def shown(self) -> str:
        """The store for people."""
        ...

    @property
    def server_time(self) -> datetime | None:
        """What its clock said in its last answer, in whole seconds, cut; None where it does not say."""
        ...

    async def survey(
        self, window: Window, limit: int, *, labels: Sequence[str] = (), containing: str = ""
    ) -> list[Sample]:
        """Return up to `limit` of the newest entries in `window` of anybody, whatever the settings select, newest
        first. A store that needs a label to select by takes `labels` first, and gives `limit` for each."""
        ...

    async def tenants(self, window: Window) -> tuple[str, ...]:
        """Return who else may have entries in `window`, as the settings call tenants."""
        ...


def entry_of(labels: Mapping[str, object], names: LabelNames, ns: Nanoseconds, text: str) -> Entry:
    """Return the entry whose labels are called `names`."""
    return Entry(
        job_id=_word(labels, names.job_id),
        ns=ns,
        text=text[:MAX_TEXT_BYTES],
        host=_word(labels, names.node),
        rank=_number(_word(labels, names.rank)),
        file=_word(labels, names.file),
        stream=_word(labels, names.stream),
    )


def _word(labels: Mapping[str, object], name: str) -> str:
    value = labels.get(name, "") if name else ""
    return value[:300] if isinstance(value, str) else ""


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 7 else None
