"""Secrets out of text before it is stored or shown. Linear-time patterns; the text's length bounds the cost.

A site's own patterns are set once for a process, before it reads anything: what is masked must not depend on who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import re2

MASK = "[redacted]"
MOST_SITE_PATTERNS = 50
MAX_PATTERN_CHARS = 500
_PATTERN_MEMORY_BYTES = 1 << 20

_WHOLE = (
    r"\bhf_[A-Za-z0-9]{16,}",
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bnvapi-[A-Za-z0-9_-]{16,}",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
)
_ASSIGNED = (
    r"(?i)(\b(?:[a-z0-9_.-]*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|token)"
    r"|[a-z0-9_]+_key)[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"',;&(){}\[\]]{4,}"
)
_BEARER = r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
_URL_USER = r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]{1,64}:)[^\s@/]{1,256}(@)"


def _any_of(*patterns: str) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


_TOKENS = re2.compile(_any_of(*_WHOLE))
_NAMED = re2.compile(_ASSIGNED)
_HEADER = re2.compile(_BEARER)
_USER = re2.compile(_URL_USER)
# Nearly every line holds no secret: one look tells so, where replacing would look four times.
_SECRETS = re2.compile(_any_of(*_WHOLE, _ASSIGNED, _BEARER, _URL_USER))


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
        begin, end = found.span(self._group)
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
    text = _HEADER.sub(lambda found: found.group(1) + MASK, text)
    text = _NAMED.sub(lambda found: found.group(1) + MASK, text)
    return str(_USER.sub(lambda found: found.group(1) + MASK + found.group(2), text))
