"""Stretches of a store's entries in pages that it agrees to: its limits are learned from its refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from activities.logs.stores.protocol import Entry, LogStore, Nanoseconds, Window
from activities.stores.errors import TooMuch

DAY_NS = 24 * 3_600 * 1_000_000_000
_LEAST_ENTRIES = 50
_LEAST_SPAN_NS = 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Page:
    """The entries that one question brought."""

    entries: list[Entry]
    reached_ns: Nanoseconds
    """Up to here (newest first: down to here) all of them are known."""
    skipped: bool = False
    """There were more entries of one and the same nanosecond than the store gives at once: some are left out."""


class Pager:
    """Asks one store for one stretch after another."""

    def __init__(self, store: LogStore, *, most_entries: int | None = None) -> None:
        self._store = store
        self._limit = min(most_entries or store.most_entries, store.most_entries)
        self._span_ns = 7 * DAY_NS

    async def forward(self, job_ids: Sequence[str], window: Window) -> AsyncGenerator[Page, None]:
        """Yield all entries of these jobs in `window`, the oldest first. An entry may come twice where two pages meet.
        Raises `StoreError`."""
        start_ns = window.start_ns
        while start_ns < window.end_ns:
            end_ns = min(window.end_ns, start_ns + self._span_ns)
            entries = await self._ask(job_ids, Window(start_ns, end_ns), newest_first=False)
            if entries is None:
                continue
            if len(entries) < self._limit:
                start_ns = end_ns
                yield Page(entries, end_ns)
                continue
            stuck = entries[-1].ns == start_ns
            start_ns = entries[-1].ns + stuck
            yield Page(entries, start_ns, skipped=stuck)

    async def backward(self, job_ids: Sequence[str], window: Window) -> AsyncGenerator[Page, None]:
        """Yield all entries of these jobs in `window`, the newest first. An entry may come twice where two pages meet.
        Raises `StoreError`."""
        end_ns = window.end_ns
        while end_ns > window.start_ns:
            start_ns = max(window.start_ns, end_ns - self._span_ns)
            entries = await self._ask(job_ids, Window(start_ns, end_ns), newest_first=True)
            if entries is None:
                continue
            if len(entries) < self._limit:
                end_ns = start_ns
                yield Page(entries, end_ns)
                continue
            oldest_ns = entries[-1].ns
            stuck = oldest_ns + 1 == end_ns
            end_ns = oldest_ns if stuck else oldest_ns + 1
            yield Page(entries, end_ns, skipped=stuck)

    async def _ask(self, job_ids: Sequence[str], window: Window, *, newest_first: bool) -> list[Entry] | None:
        """Ask once; None where it was too much and the limits are lower now."""
        try:
            return await self._store.page(job_ids, window, self._limit, newest_first=newest_first)
        except TooMuch as refusal:
            if not self._take_less(refusal, window):
                raise
            return None

    def _take_less(self, refusal: TooMuch, window: Window) -> bool:
        if refusal.stretch:
            span_ns = (window.end_ns - window.start_ns) // 2
            self._span_ns = max(_LEAST_SPAN_NS, span_ns)
            return span_ns >= _LEAST_SPAN_NS
        limit = min(refusal.most_entries or self._limit, self._limit) if refusal.most_entries else self._limit // 2
        lower = limit < self._limit
        self._limit = max(_LEAST_ENTRIES, limit)
        return lower and limit >= _LEAST_ENTRIES
