"""Secrets out of text before it is stored or shown. Linear-time patterns; the text's length bounds the cost.

A site's own patterns are set once for a process, before it reads anything: what is masked must not depend on who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import re2

from recovery.secret_forms import (
    CHOSEN,
    DOUBTFUL,
    MADE,
    SAID,
    TOKENS,
    any_of,
    is_doubtless,
    is_nothing,
    is_of_text,
)

MASK = "[redacted]"
MOST_SITE_PATTERNS = 50
MAX_PATTERN_CHARS = 500
_PATTERN_MEMORY_BYTES = 1 << 20
_AROUND_A_NAME = "-=:>,\\\"' \t\r\n\f\v"


def _only_whether(pattern: str) -> Any:
    """Compile `pattern` to tell whether it matches, which is quicker than to tell what."""
    options = re2.Options()
    options.never_capture = True
    return re2.compile(pattern, options)


# Nearly every line holds no secret: one look tells so, where replacing would look many times.
_SECRETS = _only_whether(any_of(*TOKENS, CHOSEN, MADE, DOUBTFUL, *SAID))
_TOKENS = re2.compile(any_of(*TOKENS))
_CHOSEN, _MADE, _DOUBTFUL = re2.compile(CHOSEN), re2.compile(MADE), re2.compile(DOUBTFUL)
_SAID = tuple(re2.compile(pattern) for pattern in SAID)


class SitePattern:
    """A secret of a site's own: what the RE2 pattern matches is masked, or of it only the group named ``secret``."""

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`. Raises ValueError that says what is wrong with it."""
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"it has {len(pattern)} characters; {MAX_PATTERN_CHARS} is the most")
        options = re2.Options()
        options.max_mem = _PATTERN_MEMORY_BYTES
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            raise ValueError(f"{pattern!r} is not valid RE2: {_words(error)}") from error
        if self._compiled.search("") or self._compiled.fullmatch(MASK):
            raise ValueError(f"{pattern!r} matches everything or nothing at all; make it narrower")
        self._group: int = self._compiled.groupindex.get("secret", 0)

    def mask(self, text: str) -> str:
        """Return `text` with what this pattern finds replaced by `MASK`."""
        return str(self._compiled.sub(self._masked, text))

    def _masked(self, found: Any) -> str:
        return _masked(found, self._group)


def _masked(found: Any, group: int) -> str:
    """What was found with `group` of it masked."""
    begin, end = found.span(group)
    if begin == end:
        return str(found.group())
    whole, start = found.group(), found.start()
    return f"{whole[: begin - start]}{MASK}{whole[end - start :]}"


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


class _Site:
    """What this process masks beside what is known everywhere."""

    patterns: tuple[SitePattern, ...] = ()


def mask_also(patterns: Sequence[str]) -> None:
    """From now on mask in this process what `patterns` find, too, instead of those that were given before. Raises
    ValueError for one that can't be used."""
    _Site.patterns = tuple(SitePattern(pattern) for pattern in patterns)


def redact(text: str) -> str:
    """Return `text` with tokens, keys, passwords and private keys replaced by `MASK`, and with what the site's own
    patterns find. What names them stays readable: ``HF_TOKEN=hf_...`` becomes ``HF_TOKEN=[redacted]``."""
    if _SECRETS.search(text):
        text = _without_known(text)
    for pattern in _Site.patterns:
        text = pattern.mask(text)
    return text


def _without_known(text: str) -> str:
    text = _TOKENS.sub(MASK, text)
    for pattern in _SAID:
        text = pattern.sub(_mask_said, text)
    text = _CHOSEN.sub(_mask_chosen, text)
    text = _MADE.sub(_mask_made, text)
    return str(_DOUBTFUL.sub(_mask_doubtful, text))


def _mask_said(found: Any) -> str:
    return _masked(found, found.lastindex)


def _mask_chosen(found: Any) -> str:
    said_by, _, value = _parts(found)
    return str(found.group()) if is_nothing(said_by, value) else _mask_said(found)


def _mask_made(found: Any) -> str:
    said_by, name, value = _parts(found)
    return str(found.group()) if is_nothing(said_by, value) or is_of_text(name, value) else _mask_said(found)


def _mask_doubtful(found: Any) -> str:
    said_by, name, value = _parts(found)
    doubtless = not is_nothing(said_by, value) and is_doubtless(name, value)
    return _mask_said(found) if doubtless else str(found.group())


def _parts(found: Any) -> tuple[str, str, str]:
    """What says that a secret follows, the name in it, and what follows."""
    said_by = str(found.group(1))
    return said_by, said_by.strip(_AROUND_A_NAME), str(found.group(found.lastindex))
