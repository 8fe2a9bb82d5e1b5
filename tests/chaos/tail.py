"""The lines that a file has got since it was last looked at."""

from __future__ import annotations

from pathlib import Path


class Tail:
    """Reads one file on. One that has become shorter is read on from its new end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def lines(self) -> list[str]:
        """Return the whole lines since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            self._at = min(self._at, file.seek(0, 2))
            file.seek(self._at)
            new, newline, _ = file.read().rpartition(b"\n")
        self._at += len(new) + len(newline)
        return new.decode(errors="replace").splitlines()
