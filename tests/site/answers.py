"""Answers of Slurm's commands at other sites: see tests/data/slurm/README.md."""

from __future__ import annotations

from pathlib import Path

SITES = Path(__file__).parent.parent / "data" / "slurm" / "sites"


def answer(name: str) -> str:
    """Return what a command said, decoded as our runners do."""
    return (SITES / name).read_bytes().decode(errors="replace")
