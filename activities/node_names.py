"""Which node a file is of, by the file's name."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence


def node_in(path: str, nodes: Sequence[str]) -> str:
    """Return the one of `nodes` whose name stands alone in the last part of `path`; empty when none or several do. Of
    names that hold one another the longest counts."""
    file_name = posixpath.basename(path)
    named = [node for node in nodes if _stands_alone(node, file_name)]
    longest = max(named, key=len, default="")
    return longest if all(_stands_alone(node, longest) for node in named) else ""


def _stands_alone(word: str, text: str) -> bool:
    before, found, after = text.partition(word)
    return bool(found) and not before[-1:].isalnum() and not after[:1].isalnum()
