"""How a store or a service that is asked over HTTP fails.

Errors form a small tree whose class decides what happens next::

    StoreError
    ├── StoreUnavailable   no usable answer: wait longer each time, then ask again
    ├── StoreBusy          it asks for a pause: ask again after that
    ├── StoreRefused       it answered no, and will again until somebody changes something
    │   ├── NoAccess       because of who asks, or for which tenant
    │   └── NoTrust        no TLS between us
    └── TooMuch            one question asked for more than it gives: ask for less at once

Each message says what happened, to which store, and what to do about it.
"""

from __future__ import annotations


class StoreError(Exception):
    """Root of all errors of what is asked over HTTP."""


class StoreUnavailable(StoreError):
    """No usable answer: no connection, a time-out, a 5xx, HTML, half an answer."""


class StoreBusy(StoreError):
    """Too many questions."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreRefused(StoreError):
    """A credential, an address, a tenant or a selector is wrong."""


class NoAccess(StoreRefused):
    """401 or 403."""


class NoTrust(StoreRefused):
    """A certificate, ours or theirs, is not believed or can't be read."""


class TooMuch(StoreError):
    """More entries or a longer stretch of time than the store gives at once."""

    def __init__(self, message: str, *, most_entries: int | None = None, stretch: bool = False) -> None:
        super().__init__(message)
        self.most_entries = most_entries
        """The most entries that it gives, where it says so."""
        self.stretch = stretch
        """Whether the stretch of time was too long."""
