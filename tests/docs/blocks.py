"""Reads fenced blocks out of Markdown."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    """Return the fenced blocks of one language in a document, by its path in the repository."""
    text = (REPOSITORY / document).read_text()
    return [body for found, body in FENCE.findall(text) if found == language]


def commands(document: str) -> list[str]:
    """Return every command of the document's ``sh`` blocks, without comments."""
    lines = [line.split(" #")[0].strip() for block in blocks(document, "sh") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
