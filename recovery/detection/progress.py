"""Reads what a training program says of its own progress, one line at a time.

The forms are in `recovery.detection.forms`. A line may carry any prefix (rank, host, logger) and may be one piece of a
progress bar that draws over itself.
"""

from __future__ import annotations

import re2

from recovery.detection.form_readers import Form, Groups, integer, number
from recovery.detection.forms import ANY_FORM, FORMS
from recovery.detection.markers import IterationFinished, Marker

MAX_LINE_CHARS = 4_096
"""What is looked at of one line: progress stands near its start."""

MAX_PATTERN_CHARS = 300
_PATTERN_MEMORY_BYTES = 1 << 20


class ProgressPattern:
    """A job's own progress line: RE2 with a named group ``iteration``, and maybe ``loss`` and ``step_time_s``."""

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`. Raises ValueError that says what is wrong with it."""
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"the progress pattern has {len(pattern)} characters; {MAX_PATTERN_CHARS} is the most")
        options = re2.Options()
        options.max_mem = _PATTERN_MEMORY_BYTES
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern.encode("utf-8", "replace"), options)
        except re2.error as error:
            raise ValueError(f"the progress pattern {pattern!r} is not valid RE2: {error}") from error
        self._names = frozenset(self._compiled.groupindex)
        if b"iteration" not in self._names:
            raise ValueError(
                f"the progress pattern {pattern!r} has no named group; write (?P<iteration>[0-9]+) where the number is"
            )

    def read(self, text: bytes) -> IterationFinished | None:
        """Return the iteration that `text` reports, or None."""
        found = self._compiled.search(text)
        if found is None or (n := integer(found.group(b"iteration"))) is None:
            return None
        return IterationFinished(
            n=n, loss=self._number(found, b"loss"), step_time_s=self._number(found, b"step_time_s")
        )

    def _number(self, found: Groups, name: bytes) -> float | None:
        return number(found.group(name)) if name in self._names else None


def read_marker(line: str, custom: ProgressPattern | None = None) -> Marker | None:
    """Return what `line` says of progress, or None. Never raises; linear time. The job's own pattern goes first."""
    text = line[:MAX_LINE_CHARS].encode("utf-8", "replace")
    if custom is not None and (own := custom.read(text)) is not None:
        return own
    for index in sorted(ANY_FORM.Match(text) or ()):
        form: Form = FORMS[index]
        found = form.pattern.search(text)
        marker = form.read(found, text) if found is not None else None
        if marker is not None:
            return marker
    return None
